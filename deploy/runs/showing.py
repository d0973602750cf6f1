"""One run as lines to read: how its start went, what was measured, what it was, and where its files lie."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from deploy import render
from deploy.measuring.measurement import Acceptance, Figure, Measurement, Rung, Share
from deploy.runs import figures
from deploy.runs.kept import Kept
from deploy.text.legible import one_line

LITTLE = 0.05  # seconds: phases that took less are not told beside those that took more

Styled = tuple[str, str]  # a line and its colour, "" for none


def lines(run: Kept) -> Iterator[Styled]:
    """Everything but how its steps went and how it ended, which `render` shows; nothing of what was not come to."""
    yield from _part("start", _start(run))
    for name, host in run.hosts.items():
        if host.measurement:
            where = f" on {one_line(name)}" if len(run.hosts) > 1 else ""
            yield from _part(f"measured{where}", _measured(host.measurement))
    yield from _part("what it was", _was(run))
    yield from _part("kept", [str(run.folder), *_files(run)])
    yield from ((f"! {one_line(problem)}", "yellow") for problem in run.problems)


def document(run: Kept) -> dict[str, Any]:
    """The run as one document: in short, its verdict, steps, phases, findings, failures, and all that it filed."""
    state = run.state
    steps = [
        {"host": row.host, "step": step, "state": cell.mark, "seconds": cell.seconds, "text": cell.text}
        for row in state.rows.values()
        for step, cell in row.cells.items()
    ]
    return {
        **asdict(run.summary),
        "folder": str(run.folder),
        "verdict": dict(run.verdict),
        "steps": steps,
        "servers": run.servers,
        "phases": {name: dict(host.phases) for name, host in run.hosts.items() if host.phases},
        "findings": [event.to_json() for event in state.findings],
        "failures": [event.to_json() for event in state.failures],
        "evidence": [event.to_json() for event in state.evidence],
        "notes": list(state.notes),
        "measured": {name: host.measurement.model_dump() for name, host in run.hosts.items() if host.measurement},
        "verdicts": {name: dict(host.verdict) for name, host in run.hosts.items() if host.verdict},
        "resolved": dict(run.profile),  # `profile` is its name
        **{name: dict(getattr(run, name)) for name in ("project", "versions", "checkpoints")},
        "files": {name: list(host.files) for name, host in run.hosts.items() if host.files},
        "problems": list(run.problems),
    }


def _part(title: str, told: Iterator[str] | Sequence[str]) -> Iterator[Styled]:
    found = list(told)
    if found:
        yield "", ""
        yield title, "bold"
        yield from ((f"  {line}", "") for line in found)


def _start(run: Kept) -> Iterator[str]:
    for name, host in run.hosts.items():
        where = f"{one_line(name)}: " if len(run.hosts) > 1 else ""
        told = {phase: seconds for phase, seconds in host.phases.items() if seconds >= LITTLE} or host.phases
        took = [f"{one_line(phase)} {render.seconds(seconds)}" for phase, seconds in told.items()]
        if took:
            yield f"{where}{', '.join(took)}"


def _measured(told: Measurement) -> Iterator[str]:
    on = told.on
    fixed = "exactly" if on.fixed_length else "at most"
    asked = f"prompts {on.prompts}, {fixed} {on.max_tokens} tokens, temperature {on.temperature:g}, load {on.load}"
    if told.why:
        yield f"no figures are stored: {one_line(told.why)}"
        yield asked
        return
    yield f"{asked}, {render.seconds(told.seconds)}"
    yield from _table(sorted(told.rungs, key=lambda rung: rung.concurrency))
    yield from _acceptance(told.acceptance) if told.acceptance else [f"no acceptance: {one_line(told.no_acceptance)}"]
    for witness in told.witnesses:
        length = "nothing" if witness.accept_length is None else f"{witness.accept_length:.2f}"
        word = {True: ", which agrees", False: ", which DISAGREES", None: ""}[witness.agrees]
        yield one_line(f"{witness.source} says {length}{word}{f' ({witness.note})' if witness.note else ''}")
    yield from _against(told)
    yield from (one_line(f"! {note}") for note in told.notes)


def _table(rungs: Sequence[Rung]) -> Iterator[str]:
    """A column for each concurrency, a row for each figure that one of them has."""
    columns = [_column(rung) for rung in rungs]
    names = [name for name in (columns[0] if columns else ()) if any(column[name] != "-" for column in columns)]
    first = max(map(len, names), default=0)
    widths = [max(len(column[name]) for name in names) for column in columns]
    for name in names:
        cells = [column[name].ljust(width) for column, width in zip(columns, widths, strict=True)]
        yield "  ".join([name.ljust(first), *cells]).rstrip()


def _column(rung: Rung) -> dict[str, str]:
    told = {"requests at once": str(rung.concurrency), "rounds": str(rung.rounds)}
    told |= {"total": figures.text("tok_s", rung.tok_s), "each": figures.text("tok_s_stream", rung.tok_s_stream)}
    told |= {"accept length": figures.text("accept_length", rung.accept_length)}
    for name, found in (("first token", rung.ttft), ("between tokens", rung.itl)):
        parts = {"p50": found.p50, "p95": found.p95, "p99": found.p99} if found else dict[str, Figure]()
        told |= {f"{name} {part}": figures.text("itl", parts.get(part)) for part in ("p50", "p95", "p99")}
    told |= {"goodput": figures.text("goodput", rung.goodput), "errors": str(rung.errors or "-")}
    told |= {"cut off": str(rung.truncated or "-"), "watts": "-" if rung.watts is None else f"{rung.watts:.0f}"}
    return told


def _acceptance(told: Acceptance) -> Iterator[str]:
    drafts = f"1 + {told.accepted:,} accepted drafts / {told.steps:,} verify steps"
    yield f"accept length {_share(told)} = {drafts}, by {one_line(told.source)}"
    for name, shares in (("class", told.by_class), ("rank", told.by_rank)):
        if len(shares) > 1:
            yield f"by {name}: {', '.join(f'{one_line(key)} {_share(share)}' for key, share in shares.items())}"
    if told.positions:
        kept = ", ".join(f"{part:.0%}" for part in told.positions)
        yield f"by position: {kept} of the 1st, 2nd, ... draft of a step"


def _share(told: Share | Acceptance) -> str:
    band = "" if told.low is None or told.high is None else f" ({told.low:.2f} to {told.high:.2f})"
    return f"{told.accept_length:.2f}{band}"


def _against(told: Measurement) -> Iterator[str]:
    if told.baseline and told.speedup:
        gains = [f"{figures.text('speedup', ratio)} with {streams}" for streams, ratio in told.speedup.items()]
        yield one_line(f"speed-up over no draft (run {told.baseline.run}): {', '.join(gains)} at once")
    if told.last_good:
        names = ("accept_length", "tok_s")
        known = [f"{name} {figures.text(name, told.last_good.figures.get(name))}" for name in names]
        yield one_line(f"last good run {told.last_good.run}: {', '.join(known)}")
    if told.quality:
        count = f"{told.quality.differ} of {told.quality.compared} answers differ from those without a draft"
        yield f"{count}{f', {told.quality.unstable} of them unstable' if told.quality.unstable else ''}"


def _was(run: Kept) -> Iterator[str]:
    facts: dict[str, Any] = {"draft": _draft(run.draft), "model": _models(run), "project": _project(run.project)}
    hosts = run.versions.get("hosts")
    for name, told in hosts.items() if isinstance(hosts, Mapping) else ():
        facts[name] = _host(told) if isinstance(told, Mapping) else ""
    facts["deploy"] = run.versions.get("tool")
    width = max((len(name) for name, told in facts.items() if told), default=0)
    yield from (f"{one_line(name):<{width}}  {one_line(told, 200)}" for name, told in facts.items() if told)


def _draft(told: Mapping[str, Any]) -> str:
    return f"{told.get('path')}, release {str(told.get('digest'))[:16]}" if told else ""


def _models(run: Kept) -> str:
    models = run.checkpoints.get("model")
    known = models.values() if isinstance(models, Mapping) else ()
    told = [f"{one.get('path')}, {str(one.get('identity'))[:16]}" for one in known if isinstance(one, Mapping)]
    return "; ".join(dict.fromkeys(told))


def _project(told: Mapping[str, Any]) -> str:
    if not told or told.get("why"):
        return ""
    changed = len(told.get("changed") or ()) + (told.get("more") or 0)
    state = f", {changed} file{'s' * (changed != 1)} changed since" if changed else ""
    return f"{str(told.get('commit') or 'no commit')[:12]} of {told.get('branch') or 'no branch'}{state}"


def _host(told: Mapping[str, Any]) -> str:
    cards = Counter(map(str, told.get("gpus") or ()))
    words = [f"{told.get('engine', '')} {told.get('engine_version', '')}".strip()]
    words += [f"{count} x {card}" for card, count in cards.items()]
    words += [f"driver {told['driver']}"] if told.get("driver") else []
    return ", ".join([*words, *(str(told[name]) for name in ("system", "kernel") if told.get(name))])


def _files(run: Kept) -> Iterator[str]:
    yield from (f"hosts/{host.folder.name}: {', '.join(host.files)}" for host in run.hosts.values() if host.files)
