"""What a run leaves on the screen below its grid: findings, one box per failure, the verdict."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Final

from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from deploy.events import Event
from deploy.render import _words
from deploy.render._state import State
from deploy.text.legible import one_line

_WIDEST: Final = 120  # columns of a box: longer lines are hard to read


def ending(state: State) -> Group:
    """All that is to be told below the grid once a run is over."""
    return Group(details(state), verdict(state))


def details(state: State) -> Group:
    """Findings, failures, evidence and notes."""
    notes = [Text(f"! {one_line(note)}", "yellow") for note in state.notes]
    return Group(*_findings(state), *_boxes(state), *_evidence(state), *notes)


def verdict(state: State) -> Group:
    """How it ended, in one line, and each gate; nothing where it has not."""
    return Group(*_verdict(state))


def _findings(state: State) -> Iterator[RenderableType]:
    told = [finding for finding in state.findings if not _words.is_good(finding)]
    for same in _together(told, lambda one: (_words.finding(one), str(one.facts.get("remedy")))):
        first = same[0]
        where = f"{_hosts(same)}: " if len(state.rows) > 1 else ""
        failed = first.facts.get("verdict") == "FAIL" and not first.facts.get("waived")
        yield Text(f"{where}{_words.finding(first)}", "red" if failed else "yellow")
        if first.facts.get("remedy"):
            yield Padding(_remedy(first), (0, 0, 0, 2))


def _boxes(state: State) -> Iterator[RenderableType]:
    # Hosts that failed of the same cause share a box that names them all.
    for same in _together(state.failures, lambda one: (one.kind, one.step, one.text, str(one.facts))):
        if _words.is_stop(same[0]) and state.ended and state.ended.text == same[0].text:
            continue  # the last line says it all
        yield _crash(same[0]) if same[0].kind == "crashed" else _box(same)


def _evidence(state: State) -> Iterator[RenderableType]:
    for same in _together(state.evidence, lambda one: one.text):
        yield Text(_words.last_lines(_words.evidence(same))[0], "dim", overflow="fold")


def _box(same: list[Event]) -> RenderableType:
    first = same[0]
    word, style = ("stopped", "yellow") if _words.is_stop(first) else ("failed", "red")
    parts: list[RenderableType] = [Text("\n".join(_words.last_lines(first.text)) or word, "bold")]
    evidence = _words.evidence_of(first)
    if evidence:
        parts += [Text(), *(_indented(line, "dim") for line in evidence)]
    if first.facts.get("remedy"):
        parts += [Text(), _remedy(first)]
    where = " · ".join(part for part in (_hosts(same), one_line(first.step), word) if part)
    return _framed(Group(*parts), where, style)


def _crash(event: Event) -> RenderableType:
    traceback = "\n".join(_words.last_lines(event.text))
    return _framed(Text(traceback), "a bug in deploy", "red")


def _framed(content: RenderableType, title: str, style: str) -> RenderableType:
    return Constrain(Panel(content, title=Text(title), title_align="left", border_style=style), _WIDEST)


def _verdict(state: State) -> list[RenderableType]:
    event = state.ended
    if event is None:
        return []
    code = event.facts.get("exit_code", 0)
    lines: list[RenderableType] = [
        _indented(line, "") for line in _words.verdict_lines(event.facts.get("verdict") or {})
    ]
    slowest = "" if len(state.rows) == 1 else _slowest(state)
    if slowest:
        lines.append(_indented(slowest, "dim"))
    sign = Text("✗ " if code else "✓ ", "bold red" if code else "bold green")
    took = _words.seconds(_words.number(event.facts.get("seconds")) or event.at - state.started)
    tail = f"  exit {code}, {took}" if code else f"  {took}"
    return [Text.assemble(sign, (one_line(event.text), "bold"), (tail, "dim")), *lines]


def _slowest(state: State) -> str:
    def longest(step: str) -> float:
        return max((row.cell(step).seconds or 0.0 for row in state.rows.values()), default=0.0)

    times = sorted(((longest(step), step) for step in state.steps), reverse=True)
    words = [f"{one_line(step)} {_words.seconds(took)}" for took, step in times[:4] if took >= 0.1]
    return f"slowest: {', '.join(words)}" if words else ""


def _together(events: Iterable[Event], key: Callable[[Event], Hashable]) -> list[list[Event]]:
    groups: dict[Hashable, list[Event]] = {}
    for event in events:
        groups.setdefault(key(event), []).append(event)
    return list(groups.values())


def _hosts(same: list[Event]) -> str:
    return one_line(", ".join(dict.fromkeys(event.host for event in same if event.host)))


def _remedy(event: Event) -> RenderableType:
    table = Table.grid(padding=(0, 1, 0, 0))
    for index, line in enumerate(_words.last_lines(str(event.facts.get("remedy") or ""))):
        table.add_row(Text("→" if index == 0 else "", "green"), Text(line, "green", overflow="fold"))
    return table


def _indented(line: str, style: str) -> RenderableType:
    return Padding(Text(line, style, overflow="fold"), (0, 0, 0, 2))
