"""`deploy profile`: which profiles there are, what one comes to, and where each of its values was said."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deploy.commands._options import later

if TYPE_CHECKING:
    from deploy.inventory import Host
    from deploy.project import Project
    from deploy.settings import Settings

EXAMPLES = """\b
Examples:
  deploy profile list
  deploy profile show kimi-eagle3 --explain
  deploy profile show kimi-eagle3 parallel.tp=4 nccl.DEBUG=INFO --host gpu1
  deploy profile show local --json | jq .draft
  deploy profile schema > profile.schema.json     for an editor: # yaml-language-server: $schema=profile.schema.json
  deploy profile schema --inventory > inventory.schema.json
"""

_project = click.option(
    "--project", "folder", type=click.Path(path_type=Path, file_okay=False), help="The project's folder."
)
_json = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")


@click.group(epilog=EXAMPLES)
def profile() -> None:
    """List profiles, show what one comes to, or print the schema for editors."""


@profile.command("list")
@_project
@_json
def list_(folder: Path | None, as_json: bool) -> None:
    """List the profiles: those of the project, then those that come with deploy."""
    project = _open(folder)
    rows = [
        {"name": name, "file": project.shown(file), "about": _about(file)} for name, file in project.profiles().items()
    ]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    width = max((len(row["name"]) for row in rows), default=0)
    for row in rows:
        click.echo(f"{row['name']:<{width}}  {row['about'] or row['file']}")


@profile.command()
@click.argument("name", shell_complete=later("profiles"))
@click.argument("words", nargs=-1, metavar="[KEY=VALUE]...", shell_complete=later("words"))
@click.option("--explain", is_flag=True, help="Every key with its value, and where that was said.")
@click.option("--host", shell_complete=later("hosts"), help="As it is on this host of the inventory.")
@_project
@_json
def show(
    name: str, words: tuple[str, ...], *, explain: bool, host: str | None, folder: Path | None, as_json: bool
) -> None:
    """Show the profile NAME with the overrides given."""
    from deploy import settings
    from deploy.config import documents

    found = settings.load(name, words, _open(folder), os.environ)
    on = _host(found, host) if host else None
    if explain:
        _explain(found, on, as_json)
        return
    content = found.profile(on).model_dump(mode="json")
    click.echo(json.dumps(content, indent=2, ensure_ascii=False) if as_json else documents.written(content), nl=as_json)


@profile.command()
@click.option("--inventory", is_flag=True, help="That of inventory.yaml instead.")
def schema(*, inventory: bool) -> None:
    """Print the JSON schema of a profile's file, for editors."""
    from deploy.settings import editor

    click.echo(json.dumps(editor.inventory() if inventory else editor.schema(), indent=2))


def _open(folder: Path | None) -> Project:
    from deploy import project

    return project.find_or_builtin(chosen=folder)


def _about(file: Path) -> str:
    """The first comment of a profile's file: what it is."""
    with file.open(encoding="utf-8", errors="replace") as lines:
        comments = (line.lstrip("# ").strip() for line in lines if line.startswith("#") and "$schema" not in line)
        return next((line for line in comments if line), "")


def _host(found: Settings, name: str) -> Host:
    from deploy.errors import ConfigError

    hosts = found.inventory.select(name)
    if len(hosts) != 1:
        raise ConfigError(f"--host {name} means {len(hosts)} hosts", remedy="name one of them")
    return hosts[0]


def _explain(found: Settings, host: Host | None, as_json: bool) -> None:
    rows = found.explain(host)
    if as_json:
        told = [{"key": key, "value": value, "kind": origin.kind, "where": origin.where} for key, value, origin in rows]
        click.echo(json.dumps(told, indent=2, ensure_ascii=False))
        return
    shown = [(key, json.dumps(value, ensure_ascii=False), f"{o.kind} {o.where}".strip()) for key, value, o in rows]
    widths = [max(len(row[column]) for row in shown) for column in (0, 1)]
    for key, value, origin in shown:
        click.echo(f"{key:<{widths[0]}}  {value:<{min(widths[1], 48)}}  {origin}")
