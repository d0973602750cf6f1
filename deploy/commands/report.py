"""`deploy report`: what came of a run, on one page for whoever was not there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deploy.commands._options import later
from deploy.commands._recorded import folder_of_runs

if TYPE_CHECKING:
    from deploy.report.document import Document
    from deploy.runs.kept import Kept


@click.command
@click.argument("runs", nargs=-1, metavar="[RUN]...", shell_complete=later("runs"))
@click.option(
    "--out",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where the page goes; its Markdown twin lies beside it. FILE.md: that alone.",
)
@click.option("--json", "as_json", is_flag=True, help="The JSON that both are made from, on stdout.")
@click.option("--project", type=click.Path(path_type=Path, file_okay=False), help="The project's folder.")
def report(runs: tuple[str, ...], out: Path | None, as_json: bool, project: Path | None) -> None:
    """Make a page of RUN, or of several: verdict, start, acceptance, speed, comparison, findings, how to do it again.

    One HTML file that needs no network, and the same as Markdown. RUN is a run's name, the beginning of it, or `last`;
    without one it is the newest run that measured.

    \b
    Examples:
      deploy report
      deploy report 20261201-0900 --out kimi.html
      deploy report 20261201-0900 20261130-1700
      deploy report last --out report.md
      deploy report --json | jq '.runs[0].gates'
    """
    from deploy.report import reading

    kept = _chosen(runs, project)
    document = reading.document(kept, [_difference(kept[0], other) for other in kept[1:]])
    if as_json:
        click.echo(document.model_dump_json(indent=2))
        return
    for path in _written(document, out or kept[0].folder / ("report.html" if len(kept) == 1 else "compared.html")):
        click.echo(path)


def _chosen(words: tuple[str, ...], chosen: Path | None) -> list[Kept]:
    from deploy import record
    from deploy.runs import kept

    runs = folder_of_runs(chosen)
    folders = [record.find(runs, word) for word in words] or [_newest(runs)]
    return [kept.read(folder) for folder in dict.fromkeys(folders)]


def _difference(first: Kept, other: Kept) -> dict[str, Any]:
    """As `deploy diff --json` tells it."""
    from deploy.ckpt import recorded
    from deploy.runs import comparing

    lines, tensors = recorded.told(first.draft, other.draft)
    return {**comparing.compare(first, other).to_json(), "tensors": tensors, "tensors_told": lines}


def _newest(runs: Path) -> Path:
    """The newest run that measured; where none did, the newest."""
    from deploy import record

    measured = (run.id for run in record.summaries(runs) if (run.accept_length, run.tok_s) != (None, None))
    return record.find(runs, next(measured, "last"))


def _written(document: Document, out: Path) -> list[Path]:
    """The files that were written."""
    from deploy.errors import ConfigError
    from deploy.report import charts, content, html, markdown

    page = content.page(document)
    files = {out.with_suffix(".md"): markdown.render(page)}
    if out.suffix != ".md":
        files = {out: html.render(page, html.style(), charts.svg), **files}
    for path, text in files.items():
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"cannot write {path}", evidence=str(error), remedy="--out FILE") from error
    return list(files)
