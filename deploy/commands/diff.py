"""`deploy diff`: how two runs differ."""

from __future__ import annotations

from pathlib import Path

import click

from deploy.commands._options import later
from deploy.commands._recorded import coloured, folder_of_runs


@click.command
@click.argument("a", metavar="A", shell_complete=later("runs"))
@click.argument("b", metavar="[B]", default="last", shell_complete=later("runs"))
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option("--project", type=click.Path(path_type=Path, file_okay=False), help="The project's folder.")
def diff(a: str, b: str, *, as_json: bool, project: Path | None) -> None:
    """Show how run B (default: the last one) differs from run A: profile, environment, flags, checkpoint, versions,
    times, and what was measured, each figure better, same or worse as far as the noise of its rounds lets one say.

    \b
    Examples:
      deploy diff 20261129-2015 last
      deploy diff 20261129-2015 --json | jq '.bench[] | select(.verdict == "worse")'
    """
    from deploy import ckpt, record
    from deploy.ckpt import recorded
    from deploy.runs import beside, comparing, kept

    runs = folder_of_runs(project)
    found = comparing.compare(*(kept.read(record.find(runs, word)) for word in (a, b)))
    lines, tensors = recorded.told(found.a.draft, found.b.draft)
    if as_json:
        click.echo(ckpt.document({**found.to_json(), "tensors": tensors, "tensors_told": lines}))
        return
    for problem in (*found.a.problems, *found.b.problems):
        click.secho(f"! {problem}", fg="yellow", err=True)
    for text, colour in beside.lines(found, lines):
        click.echo(coloured(text, colour))
