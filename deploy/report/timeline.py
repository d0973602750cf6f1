"""When each step of a run began and ended, and each stage of a server's start within `wait`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from deploy.events import Event
from deploy.render import State, number
from deploy.report.document import Span, Stage

BEGUN = ("done", "failed", "skipped", "left", "running")  # not: pending
WAIT = "wait"


def spans(events: Sequence[Event], state: State) -> tuple[Span, ...]:
    """Each step of each host, in the order in which the hosts and their steps came."""
    begun = {(event.host, event.step): event.at for event in events if event.kind == "step_started"}
    return tuple(
        Span(
            host=host,
            step=step,
            state="left" if cell.mark == "running" else cell.mark,  # nothing runs any more in a record
            begin=_since(begun.get((host, step)), state.started),
            seconds=round(state.at - cell.since, 3) if cell.mark == "running" else cell.seconds,
            text=cell.text,
        )
        for host, row in state.rows.items()
        for step, cell in row.cells.items()
        if cell.mark in BEGUN
    )


def _since(at: float | None, started: float) -> float | None:
    return None if at is None else round(max(at - started, 0.0), 3)


def stages(events: Sequence[Event]) -> tuple[Stage, ...]:
    """The stages of each server's start: as they were told in the end, or as far as it came."""
    started = events[0].at if events else 0.0
    found: list[Stage] = []
    for host in dict.fromkeys(event.host for event in events if event.host):
        heard = [event for event in events if event.host == host and event.step == WAIT]
        begun = next((event.at for event in heard if event.kind == "step_started"), None)
        if begun is not None:
            found += [
                Stage(host=host, name=name, begin=round(begin - started, 3), seconds=round(seconds, 3))
                for name, begin, seconds in _told(heard, begun) or _heard(heard)
            ]
    return tuple(found)


def _told(heard: Sequence[Event], begun: float) -> list[tuple[str, float, float]]:
    """One after the other from the beginning of `wait`, by the seconds that a start that came to its end tells."""
    told: Mapping[str, Any] = next((event.facts["phases"] for event in heard if _has(event, "phases")), {})
    found, at = [], begun
    for name, took in told.items():
        if (seconds := number(took)) is not None and seconds >= 0:
            found.append((str(name), at, seconds))
            at += seconds
    return found


def _heard(heard: Sequence[Event]) -> list[tuple[str, float, float]]:
    """By the words of a start that did not come to its end: each stage until the next one was heard."""
    marks = list(_marks(heard))
    ends = [*(at for _, at in marks), heard[-1].at][1:]
    return [(name, at, max(end - at, 0.0)) for (name, at), end in zip(marks, ends, strict=True)]


def _marks(heard: Sequence[Event]) -> Iterator[tuple[str, float]]:
    """(stage, when it was first heard of); it is in no stage once it is ready."""
    last = ""
    for event in heard:
        words = (event.facts.get("component"), event.facts.get("phase"))
        stage = " ".join(str(word) for word in words if word) if event.facts.get("phase") else ""
        if stage and stage not in (last, "ready"):
            yield stage, event.at
            last = stage


def _has(event: Event, fact: str) -> bool:
    return isinstance(event.facts.get(fact), Mapping)
