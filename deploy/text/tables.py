"""Rows as text: columns, or a paragraph for each row where the terminal is too narrow for them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from shutil import get_terminal_size
from typing import Any

import click

from deploy.text.legible import one_line

LONGEST = 2000  # characters of a cell


def table(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> None:
    """Print the rows as columns; those that nobody fills are left out. On a terminal that is too narrow for them, each
    row is a paragraph below its first cell.
    """
    told = lines(rows, columns)
    if not sys.stdout.isatty() or max(map(len, told)) <= get_terminal_size().columns:
        click.echo("\n".join(told))
        return
    width = max(map(len, columns))
    for row in rows:
        click.secho(cell(row[columns[0]]), bold=True, color=None if "NO_COLOR" not in os.environ else False)
        for column in columns[1:]:
            if row.get(column) not in (None, ""):
                click.echo(f"  {column:<{width}}  {cell(row[column])}")


def cells(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> tuple[list[str], list[list[str]]]:
    """The columns that somebody fills, and the rows' cells in words."""
    shown = [column for column in columns if any(row.get(column) not in (None, "") for row in rows)]
    return shown, [[cell(row.get(column)) for column in shown] for row in rows]


def lines(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> list[str]:
    """The same as text."""
    shown, told = cells(rows, columns)
    widths = [
        max(len(text) for text in (name, *column)) for name, column in zip(shown, zip(*told, strict=True), strict=True)
    ]
    return [
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in (shown, *told)
    ]


def cell(value: Any) -> str:
    """One value as people read it."""
    if isinstance(value, float):
        return f"{value:.2f}"
    if isinstance(value, Mapping):  # what has words of its own
        value = value["text"]
    return "" if value is None else one_line(str(value), LONGEST)
