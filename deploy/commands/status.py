"""`deploy status`: what runs, as the hosts tell it now."""

from __future__ import annotations

import click

from deploy.commands._options import looking
from deploy.options import Options


@click.command
@looking()
def status(options: Options) -> int:
    """Say what is deployed on each host: stopped, loading, serving or dead, derived there and now.

    Of a server over several hosts the first one tells; another that does not answer itself is following.

    \b
    Examples:
      deploy status
      deploy status --hosts gpu[1-4] --json
    """
    import json

    from deploy import running, telling
    from deploy.session import Session

    with Session("status") as session:
        name = running.only_profile(options)
        unreachable = running.ask(options, session)
        rows = telling.status(session, name)
        rows += [{"host": name, "state": "unreachable", "why": error.what} for name, error in unreachable.items()]
    if options.json:
        click.echo(json.dumps(rows, indent=1))
    else:
        telling.table(rows)
    return 3 if unreachable else 0
