"""A table that is kept up to date on a terminal, for who watches hosts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from deploy.render import Screen
from deploy.render.live import console_on

FRAME = 3  # lines of a table that are no rows: its head, the rule below, the line that tells when
WRAPPED = ("model", "gpus", "drift", "why", "hold")  # columns that give way where the terminal is narrow


@dataclass(frozen=True)
class Picture:
    """What is shown: the columns' names, a row of cells and its colour each, and a line below."""

    columns: Sequence[str]
    rows: Sequence[tuple[Sequence[str], str]]
    below: str = ""


class Board:
    """Draws what `picture` gives, for the length of a `with`; what is left at its end is the last one."""

    def __init__(self, screen: Screen, picture: Callable[[int], Picture]) -> None:
        self._console: Console = console_on(screen, screen.stdout)
        self._picture = picture
        self._live = Live(console=self._console, get_renderable=self._draw, refresh_per_second=2, redirect_stderr=False)

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def _draw(self) -> Group:
        picture = self._picture(max(1, self._console.height - FRAME))
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
        for name in picture.columns:
            table.add_column(name, overflow="fold", no_wrap=name not in WRAPPED)
        for cells, colour in picture.rows:
            table.add_row(*(Text(cell) for cell in cells), style=colour)
        return Group(table, Text(picture.below, "dim"))
