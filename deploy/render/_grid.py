"""The run as it stands: steps under one another for one host, a host x step grid for many."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from deploy.events import Event
from deploy.render import _words
from deploy.render._state import Cell, Mark, Row, State
from deploy.text.legible import one_line

_SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
SIGNS: Final = MappingProxyType[Mark, str](
    {"pending": "·", "running": _SPINNER[0], "done": "✓", "failed": "✗", "skipped": "-", "left": "…"}
)
STYLES: Final = MappingProxyType[Mark, str](
    {"pending": "dim", "running": "cyan", "done": "green", "failed": "bold red", "skipped": "dim", "left": "yellow"}
)
_ROOM: Final = 44  # characters that words need beside a grid with a column for each step


@dataclass(frozen=True)
class Grid:
    """A state at the moment `now` (seconds since the epoch), as wide as the terminal."""

    state: State
    now: float

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """What fits: one column of steps, a column for each step, or a sign for each step."""
        state = self.state
        yield _title(state, self.now)
        yield from (Text(one_line(why), style="dim") for why in state.decided[:3])
        if len(state.rows) == 1:
            yield from self._tall(next(iter(state.rows.values())), bar=options.max_width // 8)
        elif options.max_width >= _wide_width(state) + _ROOM:
            yield self._wide()
        else:
            yield self._narrow(bar=options.max_width // 10)
        if state.ended is None:
            yield from (Text(f"! {one_line(note)}", style="yellow") for note in state.notes[-3:])

    def _tall(self, row: Row, bar: int) -> Iterator[RenderableType]:
        table = Table.grid(padding=(0, 2, 0, 0), expand=True)
        table.add_column(width=1)
        table.add_column(no_wrap=True)
        table.add_column(justify="right", min_width=6, no_wrap=True)
        # An outcome that is cut while things move is told whole at the end.
        table.add_column(
            ratio=1, no_wrap=self.state.ended is None, overflow="ellipsis" if not self.state.ended else "fold"
        )
        for step in self.state.steps:
            cell = row.cell(step)
            style = STYLES[cell.mark] if cell.mark in ("pending", "skipped") else ""
            told_below = self.state.ended and cell.mark in ("failed", "left")
            words = Text() if told_below else self._words(row, cell, bar)
            table.add_row(self._sign(cell), Text(one_line(step), style), self._took(cell), words)
        yield table
        if self.state.ended is None and row.line and row.said and row.line != row.said.text:
            yield Text(one_line(row.line), style="dim", no_wrap=True, overflow="ellipsis")

    def _wide(self) -> RenderableType:
        table = Table(box=None, padding=(0, 2, 0, 0), expand=True, header_style="dim", pad_edge=False)
        table.add_column("host", no_wrap=True, max_width=24)
        for step in self.state.steps:
            table.add_column(Text(one_line(step)), justify="right", min_width=7, no_wrap=True)
        table.add_column("", ratio=1, no_wrap=True, overflow="ellipsis")
        for row in self.state.rows.values():
            cells = [self._timed(row.cell(step)) for step in self.state.steps]
            table.add_row(Text(one_line(row.host)), *cells, self._words(row, row.cell(row.step), bar=12))
        return table

    def _narrow(self, bar: int) -> RenderableType:
        table = Table.grid(padding=(0, 2, 0, 0), expand=True)
        table.add_column(no_wrap=True, max_width=16, overflow="ellipsis")
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True, max_width=9)
        table.add_column(justify="right", min_width=6, no_wrap=True)
        table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        for row in self.state.rows.values():
            cell = row.cell(row.step)
            signs = Text().join(self._sign(row.cell(step)) for step in self.state.steps)
            table.add_row(
                Text(one_line(row.host)),
                signs,
                Text(one_line(row.step)),
                self._took(cell),
                self._words(row, cell, bar),
            )
        return table

    def _sign(self, cell: Cell) -> Text:
        turning = _SPINNER[int(self.now * 8) % len(_SPINNER)]
        return Text(turning if cell.mark == "running" else SIGNS[cell.mark], STYLES[cell.mark])

    def _took(self, cell: Cell) -> Text:
        took = self.now - cell.since if cell.mark == "running" else cell.seconds
        return Text("" if took is None else _words.seconds(took), "" if cell.mark == "running" else "dim")

    def _timed(self, cell: Cell) -> Text:
        took = self._took(cell)
        sign = self._sign(cell)
        return Text(" ").join([sign, Text(took.plain, STYLES[cell.mark])]) if took.plain else sign

    def _words(self, row: Row, cell: Cell, bar: int) -> Text:
        if cell.mark not in ("running", "left") or cell.text:
            style = "red" if cell.mark == "failed" else "dim" if cell.mark == "skipped" else ""
            return Text(one_line(cell.text), style)
        if row.said is None:
            return Text(one_line(row.line), "dim")
        since = max(self.now - row.said.at, 0.0) if cell.mark == "running" else 0.0
        words = [Text(_words.said(row.said)), Text(_words.progress(row.said.facts, since), "cyan")]
        if len(self.state.rows) > 1:  # beside other columns there is little room, and how far it is matters most
            words.reverse()
        words.append(_bar(row.said, bar))
        return Text("  ").join(word for word in words if word.plain)


def _title(state: State, now: float) -> RenderableType:
    table = Table.grid(expand=True, padding=(0, 2, 0, 0))
    table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    table.add_column(justify="right", no_wrap=True)
    at = now if state.ended is None else state.at
    run = Text(one_line(str(state.facts.get("id") or "")), "dim")
    took = Text(_words.seconds(at - state.started).rjust(7))
    table.add_row(Text(_words.title(state.facts), "bold"), Text.assemble(run, took))
    return table


def _bar(said: Event, width: int) -> Text:
    share = _words.share(said.facts)
    if share is None:
        return Text()
    full = int(share * width)
    return Text.assemble(("━" * full, "cyan"), ("─" * (width - full), "dim"))


def _wide_width(state: State) -> int:
    hosts = max((len(host) for host in state.rows), default=4)
    return min(hosts, 24) + sum(max(len(step), 7) + 2 for step in state.steps)
