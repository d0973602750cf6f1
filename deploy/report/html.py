"""A page as one HTML file that needs nothing else: no network, no script, no font from elsewhere.

Whatever came from hosts is escaped here, in `_said` alone; a policy in the page forbids what would slip through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from html import escape
from importlib import resources

from deploy.report.blocks import (
    Bars,
    Block,
    Cell,
    Chart,
    Code,
    Details,
    Page,
    Section,
    Side,
    Table,
    Text,
    Tile,
    Tiles,
    Tone,
)
from deploy.text.legible import clean

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
DEEPEST = 5  # headings go no deeper
WHOLE = 28  # characters of a cell that are not broken into lines

Draw = Callable[[Chart], str]


def render(page: Page, style: str, draw: Draw) -> str:
    """The whole page; `style` is its CSS, `draw` makes the SVG of a chart."""
    word = f'<p class="word {page.tone}">{_said(page.verdict)}</p>' if page.verdict else ""
    body = "\n".join(_section(section, 2, draw) for section in page.sections)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{_said(page.title)}{f": {_said(page.verdict)}" if page.verdict else ""}</title>
<style>
{style}</style>
</head>
<body>
<header>
<h1>{_said(page.title)}</h1>
{word}
<p class="soft">{_said(page.lead)}</p>
</header>
<main>
{body}
</main>
<footer>{_said(page.foot)}</footer>
</body>
</html>
"""


def style() -> str:
    """The page's CSS, which comes with this package."""
    return (resources.files("deploy.report") / "style.css").read_text(encoding="utf-8")


def _said(text: str) -> str:
    return escape(clean(text), quote=True)


def _section(section: Section, depth: int, draw: Draw) -> str:
    level = min(depth, DEEPEST)
    blocks = "\n".join(line for block in section.blocks for line in _block(block, depth + 1, draw))
    return f"<section>\n<h{level}>{_said(section.title)}</h{level}>\n{blocks}\n</section>"


def _block(block: Block, depth: int, draw: Draw) -> Iterator[str]:
    match block:
        case Text(text, tone):
            yield f"<p{_class(tone)}>{_said(text)}</p>"
        case Code(text, title):
            above = f'<p class="soft">{_said(title)}</p>\n' if title else ""
            yield f'{above}<pre tabindex="0">{_said(text)}</pre>'
        case Table():
            yield _table(block)
        case Tiles(tiles):
            yield f'<dl class="tiles">{"".join(map(_tile, tiles))}</dl>'
        case Chart():
            yield _figure(block, draw)
        case Side(charts):
            yield f'<div class="side">{"".join(_figure(chart, draw) for chart in charts)}</div>'
        case Details(title, blocks):
            inner = "\n".join(line for block in blocks for line in _block(block, depth, draw))
            yield f"<details>\n<summary>{_said(title)}</summary>\n{inner}\n</details>"
        case Section():
            yield _section(block, depth, draw)


def _class(tone: Tone) -> str:
    return f' class="{tone}"' if tone else ""


def _tile(tile: Tile) -> str:
    note = f'<dd class="soft">{_said(tile.note)}</dd>' if tile.note else ""
    return f"<div><dt>{_said(tile.label)}</dt><dd{_class(tile.tone)}>{_said(tile.value)}</dd>{note}</div>"


def _figure(chart: Chart, draw: Draw) -> str:
    caption = f' <span class="soft">{_said(chart.caption)}</span>' if chart.caption else ""
    return (
        f"<figure><figcaption><b>{_said(chart.title)}</b>{caption}</figcaption>\n"
        f'<div class="wide{" time" * isinstance(chart.plot, Bars)}" tabindex="0">{draw(chart)}</div>\n'
        f"<details><summary>as numbers</summary>{_table(chart.table)}</details></figure>"
    )


def _table(table: Table) -> str:
    right = [name in table.right for name in table.head]
    sides = [' class="right"' if side else "" for side in right]
    head = "".join(f"<th{side}>{_said(name)}</th>" for name, side in zip(table.head, sides, strict=True))
    rows = "\n".join(f"<tr>{''.join(map(_cell, row, right))}</tr>" for row in table.rows)
    thead = f"<thead><tr>{head}</tr></thead>\n" if any(table.head) else ""
    return f'<div class="wide" tabindex="0"><table>\n{thead}<tbody>\n{rows}\n</tbody></table></div>'


def _cell(cell: str | Cell, right: bool) -> str:
    text, tone = (cell.text, cell.tone) if isinstance(cell, Cell) else (cell, "")
    whole = len(text) <= WHOLE and "\n" not in text
    said = f"<span{_class(tone)}>{_said(text)}</span>" if tone else _said(text)
    return f'<td class="{" ".join(filter(None, ("right" * right, "whole" * whole)))}">{said}</td>'
