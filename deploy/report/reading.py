"""Recorded runs as the document of a report. What a run did not come to is missing there, and that is no error."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from deploy import __version__
from deploy.events import Event
from deploy.render import number
from deploy.report.document import Document, Found, Gate, Measured, Run, Trouble
from deploy.report.timeline import spans, stages
from deploy.runs.kept import Kept

EVIDENCE = 8000  # characters of what a host says of one thing
SCRIPT = 20000  # characters of a profile or a launch script
ORDER = ("FAIL", "UNKNOWN", "WARN", "PASS")


def document(runs: Sequence[Kept], differences: Sequence[Mapping[str, Any]] = ()) -> Document:
    """The document of these runs."""
    return Document(
        tool=__version__,
        made=time.time(),
        runs=tuple(map(run, runs)),
        differences=tuple(dict(one) for one in differences),
    )


def run(kept: Kept) -> Run:
    """One run."""
    state, short = kept.state, kept.summary
    return Run(
        id=short.id,
        command=short.command,
        profile=short.profile,
        hosts=short.hosts,
        started=short.started,
        seconds=short.seconds,
        exit_code=short.exit_code if isinstance(short.exit_code, int) else None,  # a word where it was hidden
        text=short.text,
        decided=state.decided,
        gates=tuple(_gates(kept)),
        told=_numbers(kept.verdict),
        waived=tuple(map(str, kept.verdict.get("waived") or ())),
        troubles=tuple(map(_trouble, state.failures)),
        spans=spans(kept.events, state),
        stages=stages(kept.events),
        findings=_findings(state.findings),
        evidence=tuple(f"{one.host}: {one.text}, in {one.facts.get('folder', '')}" for one in state.evidence),
        notes=(*state.notes, *kept.problems),
        measured=tuple(_measured(kept)),
        profile_yaml=_text(kept.folder / "profile.yaml"),
        project=dict(kept.project),
        versions=dict(kept.versions),
        servers=kept.servers,
        launches=dict(_launches(kept)),
        folder=str(kept.folder),
    )


def _measured(kept: Kept) -> Iterator[Measured]:
    for name, host in kept.hosts.items():
        if host.measurement is not None:
            told = host.verdict.get("diagnosis")
            diagnosis = dict(told) if isinstance(told, Mapping) else {}
            yield Measured(host=name, measurement=host.measurement, diagnosis=diagnosis)


def _launches(kept: Kept) -> Iterator[tuple[str, str]]:
    for name, host in kept.hosts.items():
        if script := _text(host.folder / "launch.sh"):
            yield name, script


def _gates(kept: Kept) -> Iterator[Gate]:
    """Those of each host's verdict, or where no host filed one, those of the run's end."""
    filed = {name: host.verdict.get("gates") for name, host in kept.hosts.items() if host.verdict}
    told = filed or {"": kept.verdict.get("gates")}
    for host, gates in told.items():
        for gate in gates if isinstance(gates, list) else ():
            if isinstance(gate, Mapping):
                yield _gate(host if len(told) > 1 else "", gate)


def _gate(host: str, told: Mapping[str, Any]) -> Gate:
    holds = told.get("holds")
    return Gate(
        name=str(told.get("name", "")),
        host=host,
        wanted=str(told.get("wanted", "")),
        state=str(told.get("state") or ""),
        holds=holds if isinstance(holds, bool) else None,
        measured=number(told.get("measured")),
        bar=number(told.get("bar")),
        margin=number(told.get("margin")),
        rounds=int(number(told.get("rounds")) or 0),
        run=str(told.get("run") or ""),
        why=str(told.get("why") or ""),
    )


def _numbers(verdict: Mapping[str, Any]) -> dict[str, float]:
    """What is told beside the gates; `tokens_per_second` is what older runs call tok_s."""
    told = {name: number(verdict.get(name)) for name in ("accept_length", "tok_s", "speedup")}
    if told["tok_s"] is None:
        told["tok_s"] = number(verdict.get("tokens_per_second"))
    return {name: value for name, value in told.items() if value is not None}


def _trouble(failure: Event) -> Trouble:
    facts = failure.facts
    return Trouble(
        host=failure.host,
        step=failure.step,
        what=failure.text,
        evidence=str(facts.get("evidence") or "")[-EVIDENCE:],
        remedy=str(facts.get("remedy") or "")[:EVIDENCE],
        stopped=facts.get("error") == "Interrupted",
    )


def _findings(events: Sequence[Event]) -> tuple[Found, ...]:
    """Worst first; what several hosts say alike once."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for event in events:
        names = ("check", "verdict", "what", "evidence", "remedy", "waived")
        hosts = alike.setdefault(tuple(str(event.facts.get(name) or "")[:EVIDENCE] for name in names), [])
        hosts += [event.host] if event.host and event.host not in hosts else []
    found = [
        Found(
            hosts=tuple(hosts),
            check=check,
            verdict=verdict,
            what=what,
            evidence=evidence,
            remedy=remedy,
            waived=bool(waived),
        )
        for (check, verdict, what, evidence, remedy, waived), hosts in alike.items()
    ]
    return tuple(sorted(found, key=lambda one: ORDER.index(one.verdict) if one.verdict in ORDER else 1))


def _text(path: Path) -> str:
    """The beginning of a file of the record; "" where there is none."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(SCRIPT)
    except OSError:
        return ""
