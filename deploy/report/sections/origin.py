"""What it was measured on, by which versions, from which project, and how to do it again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from deploy.measuring.measurement import On
from deploy.report import words
from deploy.report.blocks import Block, Code, Details, Section, Table
from deploy.report.document import Run


def section(run: Run) -> Section | None:
    """Never missing: every run has a command."""
    return Section("What was run, and how to run it again", tuple(_blocks(run)))


def _blocks(run: Run) -> Iterator[Block]:
    yield Code("\n".join(_again(run)), "to do it again")
    yield Table(("", ""), tuple((name, told) for name, told in _facts(run) if told))
    for one in run.measured:
        yield Details(f"measured on {one.host}", (Table(("", ""), tuple(_on(one.measurement.on))),))
    if run.versions:
        yield Details("versions", (Table(("", ""), tuple(_flat(run.versions))),))
    if run.profile_yaml:
        yield Details("the profile, as it was resolved", (Code(run.profile_yaml),))
    for host, script in run.launches.items():
        yield Details(f"command line and environment on {host}", (Code(script),))


def _again(run: Run) -> Iterator[str]:
    """The project as it was, then the command."""
    commit, changed = run.project.get("commit"), run.project.get("changed")
    if commit:
        files = f"; {len(changed)} files were changed since" if isinstance(changed, list) and changed else ""
        yield f"git checkout {commit}  # {run.project.get('remote') or 'the project'}{files}"
    yield f"deploy {alone(run.command)}"


def alone(command: str) -> str:
    """The command that does this run again: of a candidate of `deploy try`, the restart that it was."""
    name, *said = command.split(" ")
    if name != "try":
        return command
    keyed = [word for word in said if "=" in word or word.startswith("~")]
    return " ".join(["restart", *(f"--ckpt {word}" for word in said if word not in keyed), *keyed])


def _facts(run: Run) -> Iterator[tuple[str, str]]:
    yield "run", run.id
    yield "began", words.moment(run.started)
    yield "took", words.took(run.seconds)
    yield "exit code", "none: the client did not end it" if run.exit_code is None else str(run.exit_code)
    yield "hosts", ", ".join(run.hosts)
    yield "decided", "; ".join(run.decided)
    yield "server", "\n".join(f"{_on_host(host, run)}that of run {one}" for host, one in run.servers.items())
    yield "record", run.folder
    yield "evidence", "\n".join(run.evidence)


def _on_host(host: str, run: Run) -> str:
    return f"on {host}, " if len(run.hosts) > 1 else ""


def _on(on: On) -> Iterator[tuple[str, str]]:
    gpus = dict.fromkeys(on.gpus)
    told = {
        "model": f"{on.model}{f' ({on.model_id})' if on.model_id else ''}",
        "draft": f"{on.draft_path or ''} {f'({on.draft})' if on.draft else ''}".strip() or "none",
        "what serves": on.digest,
        "engine": " ".join(filter(None, (on.engine, on.engine_version))),
        "GPUs": ", ".join(f"{on.gpus.count(name)} x {name}" for name in gpus),
        "drafted in a step": "" if on.num_steps is None else str(on.num_steps),
        "prompts": f"{on.prompts} ({on.prompts_digest})",
        "asked": _asked(on),
        "load generator": on.load,
        "what it ran": "\n".join(on.commands),
    }
    yield from ((name, text) for name, text in told.items() if text)


def _asked(on: On) -> str:
    length = f"{on.max_tokens} tokens {'exactly' if on.fixed_length else 'at most'}"
    return f"{length}, temperature {on.temperature:g}, seed {on.seed}, streams {', '.join(map(str, on.concurrency))}"


def _flat(told: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """A document as rows: what lies within is named by its path."""
    for name, value in told.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name} ")
        elif value not in (None, "", []):
            yield f"{above}{name}", value if isinstance(value, str) else json.dumps(value)
