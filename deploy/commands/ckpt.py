"""`deploy ckpt`: look into a checkpoint, judge it before it is loaded, repair it, compare two."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from deploy.commands._options import later

EXAMPLES = """\b
Examples:
  deploy ckpt show gpu1:/data/drafts/step-4000
  deploy ckpt check draft/ --target gpu1:/models/kimi-k2.5 --engine sglang==0.5.8
  deploy ckpt fix draft/ --out fixed/
  deploy ckpt diff draft/ fixed/
"""

_project = click.option("--project", type=click.Path(path_type=Path), help="The project's folder, for host:path.")
_json = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")


def _path(name: str) -> Callable[[Any], Any]:
    return click.argument(name, metavar=name.upper(), shell_complete=later("files"))


@click.group(epilog=EXAMPLES)
def ckpt() -> None:
    """Look into checkpoints without loading them: headers alone are read, here or on a host (host:path), with nothing
    but its python3.
    """


@ckpt.command()
@_path("path")
@click.option("--all", "every", is_flag=True, help="One row a tensor, also where there are thousands.")
@_project
@_json
def show(path: str, *, every: bool, project: Path | None, as_json: bool) -> int:
    """Show the tensors of PATH (name, dtype, shape, bytes, file), its config at a glance, and its shards against its
    index.
    """
    from deploy.ckpt import options, show

    return show.run(path, options(project, as_json=as_json), every=every)


@ckpt.command()
@_path("path")
@click.option("--target", metavar="PATH", shell_complete=later("files"), help="The model that the draft is for.")
@click.option("--engine", metavar="NAME==VERSION", help="What would serve it: sglang==0.5.8, vllm==0.32.0.")
@click.option("--exact", is_flag=True, help="Ask the installed engine's own loader, about 6 s, without a GPU.")
@click.option(
    "--python",
    metavar="PATH",
    default="python3",
    shell_complete=later("files"),
    help="The interpreter in which that engine is installed.",
)
@click.option("--deep", is_flag=True, help="Look at all values, not at a sample.")
@_project
@_json
def check(path: str, *, project: Path | None, as_json: bool, **how: Any) -> int:
    """Judge PATH before it is served: will serve (exit 0); will serve at accept length 1.00, will not start, or is
    corrupt (5); could not tell (10).
    """
    from deploy.ckpt import check, options

    return check.run(path, options(project, as_json=as_json), check.How(**how))


@ckpt.command()
@_path("path")
@click.option("--out", metavar="PATH", shell_complete=later("files"), help="The new folder (default: PATH-fixed).")
@click.option(
    "--for", "--engine", "engine", metavar="NAME==VERSION", help="What will serve it; else what every version takes."
)
@click.option("--target", metavar="PATH", shell_complete=later("files"), help="The model that the draft is for.")
@click.option("--in-place", is_flag=True, help="Change the file itself, behind an undo journal.")
@click.option("--no-orig", is_flag=True, help="With --in-place: keep no copy as *.orig.")
@click.option("--undo", is_flag=True, help="Take back what --in-place did.")
@click.option("-n", "--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@_project
@_json
def fix(path: str, *, project: Path | None, as_json: bool, **how: Any) -> int:
    """Repair PATH into a new folder: names, config, vocabulary map. The weights never pass through Python.

    What cannot be repaired is told, with the reason. Running it twice changes nothing.
    """
    from deploy.ckpt import fix, options

    return fix.run(path, options(project, as_json=as_json), fix.How(**how))


@ckpt.command()
@_path("a")
@_path("b")
@click.option("--deep", is_flag=True, help="Compare all bytes of tensors of equal name and shape, not a sample.")
@_project
@_json
def diff(a: str, b: str, *, deep: bool, project: Path | None, as_json: bool) -> int:
    """Say how B differs from A: config, tensors added, removed, renamed, reshaped, changed. Exit 1 where it does."""
    from deploy.ckpt import diff, options

    return diff.run(a, b, options(project, as_json=as_json), deep=deep)
