"""A page as Markdown: what a picture shows is its table. Whatever came from hosts is words, never marks."""

from __future__ import annotations

import re
from collections.abc import Iterator

from deploy.report.blocks import Block, Cell, Chart, Code, Details, Page, Section, Side, Table, Text, Tiles
from deploy.text.legible import clean

MARKS = re.compile(r"([\\`*\[\]<|~$&]|(?<![^\W_])_|_(?![^\W_]))")  # _ within a word is one
BEGINS = re.compile(r"^(\s*)([>#])|^(\s*\d*)([-+=.)])(?=[-=\s]|$)", re.MULTILINE)  # what makes more of a line
TONES = {"good": "**", "bad": "**", "warn": "*", "soft": "", "": ""}


def render(page: Page) -> str:
    """The whole page."""
    word = f"**{plain(page.verdict).upper()}**" if page.verdict else ""
    lines = [f"# {plain(page.title)}", word, plain(page.lead)]
    for section in page.sections:
        lines += _section(section, 2)
    return "\n\n".join(line for line in [*lines, f"_{plain(page.foot)}_"] if line) + "\n"


def plain(text: str) -> str:
    """Text that says in Markdown what it says."""
    return BEGINS.sub(r"\1\3\\\2\4", MARKS.sub(r"\\\1", clean(text).strip()))


def _section(section: Section, depth: int) -> Iterator[str]:
    yield f"{'#' * min(depth, 6)} {plain(section.title)}"
    for block in section.blocks:
        yield from _block(block, depth + 1)


def _block(block: Block, depth: int) -> Iterator[str]:
    match block:
        case Text(text, tone):
            mark = TONES[tone] if "\n" not in text else ""
            yield f"{mark}{_broken(text)}{mark}" if text.strip() else ""
        case Code(text, title):
            yield from _code(text, title)
        case Table():
            yield _table(block)
        case Tiles(tiles):
            rows = tuple((tile.label, Cell(tile.value, tile.tone), tile.note) for tile in tiles)
            yield _table(Table(("", "value", ""), rows, frozenset({"value"})))
        case Chart():
            yield from _chart(block)
        case Side(charts):
            for chart in charts:
                yield from _chart(chart)
        case Details(title, blocks):
            yield from _section(Section(title, blocks), depth)
        case Section():
            yield from _section(block, depth)


def _broken(text: str) -> str:
    return "  \n".join(plain(line) for line in text.split("\n"))


def _code(text: str, title: str) -> Iterator[str]:
    """Fenced by more backticks than any that are in it."""
    text = clean(text).strip("\n")
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    if title:
        yield f"{plain(title)}:"
    yield f"{fence}\n{text}\n{fence}"


def _chart(chart: Chart) -> Iterator[str]:
    caption = f" ({plain(chart.caption)})" if chart.caption else ""
    yield f"**{plain(chart.title)}**{caption}"
    yield _table(chart.table)


def _table(table: Table) -> str:
    head = [_cell(name) for name in table.head]
    under = ["---:" if name in table.right else "---" for name in table.head]
    rows = [[_cell(cell) for cell in row] for row in table.rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, under, *rows))


def _cell(cell: str | Cell) -> str:
    """On one line, as a table's cells are."""
    text, mark = (cell.text, TONES[cell.tone]) if isinstance(cell, Cell) else (cell, "")
    lines = [plain(line) for line in clean(text).strip().split("\n")]
    words = "<br>".join(lines)
    return f"{mark}{words}{mark}" if words else ""
