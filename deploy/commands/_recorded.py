"""What the commands that read the record share."""

from __future__ import annotations

import os
from pathlib import Path

import click


def folder_of_runs(chosen: Path | None) -> Path:
    """Where runs are recorded: of the project that is chosen (--project), of the nearest one, or of none."""
    from deploy import project, record

    found = project.find(chosen=chosen)
    return record.runs_folder(found.root if found else None, os.environ)


def coloured(text: str, style: str) -> str:
    """A line in its colour, or bold, or dim; click leaves that out where nobody sees it."""
    if style == "bold":
        return click.style(text, bold=True)
    if style == "dim":
        return click.style(text, dim=True)
    return click.style(text, fg=style) if style else text
