"""Runs in short: what a list of them shows, from the first and the last events alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.errors import ConfigError, DeployError
from deploy.events import Event
from deploy.record.reading import EVENTS, lines, parse


@dataclass(frozen=True)
class RunSummary:
    """One run in a list. `exit_code` is None where the client did not end it: it was killed, or is still at it."""

    id: str
    command: str = ""
    profile: str = ""
    hosts: tuple[str, ...] = ()
    started: float = 0.0
    seconds: float = 0.0
    exit_code: int | None = None
    text: str = ""
    accept_length: float | None = None
    tok_s: float | None = None
    speedup: float | None = None
    draft: str = ""  # its digest
    ckpt: str = ""  # its path as it was given


def summaries(runs: Path) -> list[RunSummary]:
    """All runs recorded in the folder, newest first; one that cannot be read says so in its text."""
    try:
        folders = [folder for folder in runs.iterdir() if (folder / EVENTS).is_file()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(map(summary, folders), key=lambda run: (run.started, run.id), reverse=True)


def summary(folder: Path) -> RunSummary:
    """The run in short, from its first and last events alone: a record may hold a whole server log."""
    try:
        whole = lines(folder)
        events = [parse(line, str(folder / EVENTS)) for line in whole[:1] + whole[1:][-3:]]
    except DeployError as error:
        return RunSummary(folder.name, text=error.what)
    if not events:
        return RunSummary(folder.name, text="nothing was recorded")
    return _summed(folder.name, events)


def _summed(run: str, events: list[Event]) -> RunSummary:
    first = events[0]
    ended = next((event for event in reversed(events) if event.kind == "run_ended"), None)
    last = ended or events[-1]
    verdict = (last.facts.get("verdict") or {}) if ended else {}
    draft = _draft(first)
    manifest = draft.get("manifest")
    return RunSummary(
        id=run,
        command=str(first.facts.get("command", "")),
        profile=str(first.facts.get("profile", "")),
        hosts=tuple(first.facts.get("hosts", ())),
        started=first.at,
        seconds=last.at - first.at,
        exit_code=ended.facts.get("exit_code") if ended else None,
        text=last.text,
        accept_length=verdict.get("accept_length"),
        tok_s=verdict.get("tok_s", verdict.get("tokens_per_second")),  # its name until 0.1
        speedup=verdict.get("speedup"),
        draft=str(manifest.get("digest") or "") if isinstance(manifest, Mapping) else "",
        ckpt=":".join(str(draft[key]) for key in ("host", "path") if draft.get(key)),
    )


def _draft(first: Event) -> Mapping[str, Any]:
    """The draft of the plan's first node; {} where there is none, or no plan."""
    found: Any = first.facts.get("plan")
    for key in ("replicas", 0, 0, "draft"):
        try:
            found = found[key]
        except (LookupError, TypeError):
            return {}
    return found if isinstance(found, Mapping) else {}


def find(runs: Path, word: str) -> Path:
    """The folder of a run by its name, the beginning of it, or `last`. ConfigError where that is none or several."""
    known = [run.id for run in summaries(runs)]
    if not known:
        raise ConfigError(f"there are no runs in {runs}", remedy="deploy up records one")
    if word == "last":
        return runs / known[0]
    found = [word] if word in known else [run for run in known if run.startswith(word)]
    if len(found) == 1:
        return runs / found[0]
    what = f"{len(found)} runs begin with {word!r}" if found else f"there is no run {word!r}"
    raise ConfigError(what, evidence="\n".join(found[:10]), remedy="deploy history lists them")
