"""`deploy show`: how one run went."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import click

from deploy.commands._options import later
from deploy.commands._recorded import coloured, folder_of_runs


@click.command
@click.argument("run", default="last", shell_complete=later("runs"))
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option("--project", type=click.Path(path_type=Path, file_okay=False), help="The project's folder.")
def show(run: str, *, as_json: bool, project: Path | None) -> None:
    """Show how RUN went (default: the last one): its verdict, its steps and findings, what was measured, what it was,
    and where its files lie.

    \b
    Examples:
      deploy show
      deploy show 20261129-2015
      deploy show --json | jq .measured.localhost.acceptance
    """
    from deploy import record

    tell(record.find(folder_of_runs(project), run), as_json=as_json)


def tell(folder: Path, *, as_json: bool) -> None:
    """Print a run, as a document or for people."""
    from deploy.render import Screen, live
    from deploy.runs import kept, showing

    found = kept.read(folder)
    if as_json:
        click.echo(json.dumps(showing.document(found), indent=2, default=str))
        return
    live.still(found.state, Screen(sys.stdout, sys.stderr, os.environ))
    for text, colour in showing.lines(found):
        click.echo(coloured(text, colour))
