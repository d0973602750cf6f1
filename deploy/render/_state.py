"""Where a run stands, folded from its events: the live view and the history are functions of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, Literal

from deploy.events import Event
from deploy.render._pace import is_for_people, paced
from deploy.render._words import is_stop, number

CONNECT = "connect"  # no step of a recipe; shown where a host failed before its first one

Mark = Literal["pending", "running", "done", "failed", "skipped", "left"]


@dataclass(frozen=True)
class Cell:
    """One step on one host; `left` is a step that was stopped, or still running when the run ended."""

    mark: Mark = "pending"
    since: float = 0.0
    seconds: float | None = None
    text: str = ""


@dataclass(frozen=True)
class Row:
    """One host: its cells by step, the step it is at, what that one said last, and the last line of its log."""

    host: str
    cells: Mapping[str, Cell] = field(default_factory=dict)
    step: str = ""
    said: Event | None = None
    first: Event | None = None  # what its pace is measured from
    line: str = ""

    def cell(self, step: str) -> Cell:
        return self.cells.get(step, Cell())


@dataclass(frozen=True)
class State:
    """A whole run at one moment; `at` is the time of the latest event, in seconds since the epoch."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    started: float = 0.0
    at: float = 0.0
    steps: tuple[str, ...] = ()
    rows: Mapping[str, Row] = field(default_factory=dict)
    decided: tuple[str, ...] = ()
    findings: tuple[Event, ...] = ()
    failures: tuple[Event, ...] = ()
    evidence: tuple[Event, ...] = ()
    notes: tuple[str, ...] = ()
    ended: Event | None = None


def fold(state: State, event: Event) -> State:
    """The state after one more event."""
    state = replace(state, started=state.started or event.at, at=max(state.at, event.at))
    change = _CHANGES.get(event.kind)
    return change(state, event) if change else state


def _run_started(state: State, event: Event) -> State:
    steps = tuple(str(entry[0]) for entry in event.facts.get("recipe", ()))
    rows = {host: Row(host) for host in event.facts.get("hosts", ())}
    return replace(state, facts=event.facts, started=event.at, steps=steps, rows=rows)


def _step_started(state: State, event: Event) -> State:
    return _set(state, event, Cell("running", since=event.at))


def _said(state: State, event: Event) -> State:
    if not event.host or not is_for_people(event):
        return state
    row = state.rows.get(event.host, Row(event.host))
    log = event.facts.get("log")
    row = replace(row, line=log if isinstance(log, str) else event.text or row.line)
    if event.text or event.facts.keys() - {"log"}:  # a log line alone tells nothing new of the progress
        said, first = paced(event, row.first)
        row = replace(row, said=said, first=first)
    return replace(state, rows={**state.rows, event.host: row})


def _step_ended(state: State, event: Event) -> State:
    told = number(event.facts.get("seconds"))
    return _set(state, event, Cell("done", seconds=_took(state, event) if told is None else told, text=event.text))


def _step_skipped(state: State, event: Event) -> State:
    return _set(state, event, Cell("skipped", text=event.text))


def _failed(state: State, event: Event) -> State:
    state = replace(state, failures=(*state.failures, event))
    mark: Mark = "left" if is_stop(event) else "failed"
    return _set(state, event, Cell(mark, seconds=_took(state, event), text=event.text))


def _run_ended(state: State, event: Event) -> State:
    return replace(left(state), ended=event)


def left(state: State) -> State:
    """The state where nothing runs any more: what ran was left as it was."""
    return replace(state, rows={host: _stopped(row, state.at) for host, row in state.rows.items()})


def _stopped(row: Row, at: float) -> Row:
    def stopped(cell: Cell) -> Cell:
        return replace(cell, mark="left", seconds=at - cell.since) if cell.mark == "running" else cell

    return replace(row, cells={step: stopped(cell) for step, cell in row.cells.items()})


def _host_connected(state: State, event: Event) -> State:
    row = state.rows.get(event.host, Row(event.host))
    took = event.at - state.started
    cell = Cell("done", seconds=took if took > 0 else None)  # hosts may be reached before the run begins
    return replace(state, rows={**state.rows, event.host: replace(row, cells={**row.cells, CONNECT: cell})})


def _once(told: tuple[str, ...], text: str) -> tuple[str, ...]:
    return told if text in told else (*told, text)  # replicas are decided on one by one, mostly alike


def _set(state: State, event: Event, cell: Cell) -> State:
    if not event.host:
        return state
    row = state.rows.get(event.host, Row(event.host))
    step, last = event.step or row.step or CONNECT, row.step
    at = row.step if cell.mark == "skipped" else step  # what was not done is not where the host is
    row = replace(row, step=at, cells={**row.cells, step: cell}, said=None, first=None, line="")
    return replace(state, steps=_with(state.steps, step, last), rows={**state.rows, event.host: row})


def _with(steps: tuple[str, ...], step: str, last: str) -> tuple[str, ...]:
    """One that the recipe at the start did not have comes behind the `last` one that the host had come to."""
    if step in steps:
        return steps
    at = 0 if step == CONNECT else steps.index(last) + 1 if last in steps else len(steps)
    return (*steps[:at], step, *steps[at:])


def _took(state: State, event: Event) -> float | None:
    row = state.rows.get(event.host, Row(event.host))
    since = row.cell(event.step or row.step).since
    return event.at - since if since else None


_CHANGES: Final[Mapping[str, Callable[[State, Event], State]]] = MappingProxyType(
    {
        "run_started": _run_started,
        "host_connected": _host_connected,
        "decided": lambda state, event: replace(state, decided=_once(state.decided, event.text)),
        "step_started": _step_started,
        "said": _said,
        "finding": lambda state, event: replace(state, findings=(*state.findings, event)),
        "step_ended": _step_ended,
        "step_skipped": _step_skipped,
        "evidence": lambda state, event: replace(state, evidence=(*state.evidence, event)),
        "failed": _failed,
        "noted": lambda state, event: replace(state, notes=(*state.notes, event.text)),
        "crashed": lambda state, event: replace(state, failures=(*state.failures, event)),
        "run_ended": _run_ended,
    }
)
