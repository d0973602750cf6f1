"""`deploy hold`: keep hosts for yourself until a time that everybody is told."""

from __future__ import annotations

from pathlib import Path

import click

from deploy.commands._options import later


@click.command
@click.argument("hosts", metavar="HOSTS", shell_complete=later("hosts"))
@click.argument("words", nargs=-1, metavar="WHY until WHEN")
@click.option("--project", type=click.Path(path_type=Path), help="The project's folder (default: the nearest one).")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def hold(hosts: str, words: tuple[str, ...], project: Path | None, *, as_json: bool) -> int:
    """Keep HOSTS for yourself: all of them, or none. Others who would change something there are told who, why and
    until when (exit 4); looking is left to everybody. Your own commands from this machine pass.

    It outlives this command, ends by itself by the host's clock, and sooner by `deploy release`.

    \b
    Examples:
      deploy hold gpu1 "bench until 18:00"
      deploy hold 'gpu[1-4],!gpu3' "kernel work for 90m"
      deploy hold all reboot until tomorrow 9:00
    """
    import json
    from datetime import datetime

    from deploy.locking.hold import own
    from deploy.operations import holding, running
    from deploy.options import Options
    from deploy.text import when
    from deploy.walk.session import Session

    said = " ".join(words)
    reason, seconds = when.parse(said, datetime.now().astimezone())
    options = Options((), project, hosts, yes=False, output="json" if as_json else "auto", verbosity=0)
    with Session(f"hold {said}") as session:
        session.open(running.hosts(options), locked=True)
        holding.hold(session, reason, seconds)
        notes = holding.notes(session)
        held = {name: own(reason, seconds) for name in session.remotes}
    for note in notes:
        click.echo(note, err=True)
    if as_json:
        click.echo(json.dumps([{"host": name, **kept.to_json()} for name, kept in held.items()], indent=1))
    for name, kept in ({} if as_json else held).items():
        click.echo(f"{name}: held {kept}")
    return 0
