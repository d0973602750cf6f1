"""How fast a step goes on, measured from what it says: steps tell how far they are, not how fast."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from deploy.events import Event
from deploy.render._words import number

# What a step may say of its progress; an event with other facts is meant for programs (what bench measured).
PROGRESS: Final = frozenset(
    {"phase", "component", "done", "total", "unit", "rate", "log", "behind", "elapsed", "left"}  # the last two: seconds
)


def is_for_people(event: Event) -> bool:
    """Whether a `said` is about the progress of the work."""
    return event.facts.keys() <= PROGRESS


def paced(event: Event, first: Event | None) -> tuple[Event, Event]:
    """The event with its rate since `first` where that is known, and the event to measure the next one from."""
    if first is None or _work(event) != _work(first):
        return event, event
    before, done = number(first.facts.get("done")), number(event.facts.get("done"))
    passed = event.at - first.at
    if before is None or done is None or done <= before or passed < 1.0 or event.facts.get("rate") is not None:
        return event, first
    return replace(event, facts={**event.facts, "rate": (done - before) / passed}), first


def _work(event: Event) -> tuple[object, ...]:
    facts = event.facts
    return event.host, event.step, facts.get("phase"), facts.get("component"), facts.get("total"), facts.get("unit")
