"""What a report is made of, before it is HTML or Markdown: so that both say the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Tone = Literal["", "good", "bad", "warn", "soft"]


@dataclass(frozen=True)
class Cell:
    """A word with a colour."""

    text: str
    tone: Tone = ""


@dataclass(frozen=True)
class Text:
    """A paragraph; its line ends count."""

    text: str
    tone: Tone = ""


@dataclass(frozen=True)
class Code:
    """Something to be read or copied as it is."""

    text: str
    title: str = ""


@dataclass(frozen=True)
class Table:
    """Rows below a head; a column that is named in `right` has numbers."""

    head: tuple[str, ...]
    rows: tuple[tuple[str | Cell, ...], ...]
    right: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Tile:
    """One number that counts."""

    label: str
    value: str
    note: str = ""
    tone: Tone = ""


@dataclass(frozen=True)
class Tiles:
    tiles: tuple[Tile, ...]


@dataclass(frozen=True)
class Bar:
    """A stretch of time on a line of its own."""

    label: str
    begin: float
    seconds: float
    kind: str  # what its colour says


@dataclass(frozen=True)
class Bars:
    """A waterfall, seconds from left to right."""

    bars: tuple[Bar, ...]
    kinds: tuple[str, ...]  # in the order of the legend


@dataclass(frozen=True)
class Point:
    """A value with its band, of one series."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None
    series: str = ""


@dataclass(frozen=True)
class Points:
    """Values over a few labels: a line with its band (`joined`), or a dot with an interval for each label."""

    points: tuple[Point, ...]
    title: str  # of the axis of values
    labels: str = ""  # what the labels are
    joined: bool = False
    floor: float = 0.0  # nothing can be below it, whatever its band says
    ceiling: float | None = None  # nor above this
    percent: bool = False
    columns: bool = False  # drawn as columns from the floor
    names: tuple[str, ...] = field(default=())  # of the series, in order


@dataclass(frozen=True)
class Chart:
    """A picture, and the table of all that it shows: the table stands for it where no picture can be."""

    title: str
    plot: Bars | Points
    table: Table
    caption: str = ""


@dataclass(frozen=True)
class Side:
    """Charts that may stand beside each other."""

    charts: tuple[Chart, ...]


@dataclass(frozen=True)
class Details:
    """What few will want to see."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Section:
    title: str
    blocks: tuple[Block, ...]


Block = Text | Code | Table | Tiles | Chart | Side | Details | Section


@dataclass(frozen=True)
class Page:
    """A whole report: what it is, the word that it comes to, and its sections."""

    title: str
    lead: str
    verdict: str
    tone: Tone
    sections: tuple[Section, ...]
    foot: str = ""
