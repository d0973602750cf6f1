"""`deploy release`: end a hold before its time."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deploy.commands._options import later

if TYPE_CHECKING:
    from deploy.locking.hold import Hold


@click.command
@click.argument("hosts", metavar="HOSTS", shell_complete=later("hosts"))
@click.option("--project", type=click.Path(path_type=Path), help="The project's folder (default: the nearest one).")
@click.option("-y", "--force", is_flag=True, help="End the holds of others too, without being asked.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def release(hosts: str, project: Path | None, *, force: bool, as_json: bool) -> int:
    """End the holds on HOSTS: your own, and those of others after a question or with --force; the host's audit has it.

    \b
    Examples:
      deploy release gpu1
      deploy release all --force
    """
    import json

    from deploy.errors import Locked
    from deploy.operations import holding, running
    from deploy.options import Options
    from deploy.walk.session import Session

    options = Options((), project, hosts, yes=force, output="json" if as_json else "auto", verbosity=0)
    with Session(f"release {hosts}") as session:
        silent = running.ask(options, session)
        held = {name: machine.hold for name, machine in session.machines.items() if machine.hold}
        unread = {
            name: f"{session.remotes[name].host.lock} cannot be read: {machine.unread}"
            for name, machine in session.machines.items()
            if machine.unread
        }
        rows = [
            {"host": name, "released": held[name].to_json() if name in held else None}
            | ({"error": unread[name]} if name in unread else {})
            for name in session.remotes
        ]
        others = {name: hold for name, hold in held.items() if not hold.ours}
        _agree(others, force=force)
        session.keep(held)
        session.lock({name: hold.named for name, hold in others.items()})
        holding.release(session)
        notes = holding.notes(session)
        session.outcome = (0, "; ".join(sorted({f"released {hold.owner}: {hold.reason}" for hold in held.values()})))
    for note in notes:
        click.echo(note, err=True)
    for name, why in unread.items():
        click.echo(f"{name}: whether it is held is not known: {why}", err=True)
    if as_json:
        click.echo(json.dumps(rows, indent=1))
    for name in [] if as_json else [str(row["host"]) for row in rows if row["host"] not in unread]:
        click.echo(f"{name}: released, it was held {held[name]}" if name in held else f"{name}: nobody held it")
    return 3 if silent else Locked.exit_code if unread else 0


def _agree(others: dict[str, Hold], *, force: bool) -> None:
    """Ask before the hold of somebody else is ended."""
    from deploy.errors import ConfigError, Interrupted

    for name, hold in others.items():
        click.echo(f"{name} is held {hold}", err=True)
    if not others or force:
        return
    whose = ", ".join(sorted({hold.owner for hold in others.values()}))
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ConfigError(f"this is the hold of {whose}", remedy="ask them, or say --force; it is noted on the host")
    if not click.confirm(f"End the hold of {whose}?", err=True):
        raise Interrupted("stopped; nothing was released")
