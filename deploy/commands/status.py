"""`deploy status`: what runs, as the hosts tell it now."""

from __future__ import annotations

import click

from deploy.commands._options import Finite, looking
from deploy.options import Options


@click.command
@looking()
@click.option("--watch", is_flag=True, help="Look again and again, until Ctrl-C.")
@click.option("--every", type=Finite(min=0.5), default=5.0, metavar="SECONDS", help="How often, with --watch: 5.")
def status(options: Options, *, watch: bool, every: float) -> int:
    """Say what is deployed on each host: stopped, loading, serving, swapping, torn, not answering or dead, as of now.

    Of a server over several hosts the first one tells; another that does not answer itself is following. `accept` and
    `tok/s` are the last that the server told; `drift` names the profile's keys that no longer say what runs.

    \b
    Examples:
      deploy status
      deploy status --hosts gpu[1-4] --json
      deploy status --watch
    """
    if watch:
        from deploy.status import watching

        return watching.show(options, every)
    import json

    from deploy.operations import running
    from deploy.project import home
    from deploy.status import telling
    from deploy.text import tables
    from deploy.walk.session import Session

    with Session("status") as session:
        name = running.only_profile(options)
        asked = telling.Asked()
        unreachable = running.ask(options, session, read=asked.read)
        rows = telling.status({host: asked.told[host] for host in session.machines}, name, home(options))
        rows += [{"host": name, "state": "unreachable", "why": error.what} for name, error in unreachable.items()]
    if options.json:
        click.echo(json.dumps(rows, indent=1))
    else:
        tables.table([telling.shown(row) for row in rows], telling.COLUMNS)
    return 3 if unreachable else 0
