"""`deploy check`: what can be known before the load, alone."""

from __future__ import annotations

import click

from deploy.commands._options import looking
from deploy.options import Options


@click.command
@looking()
def check(options: Options) -> int:
    """Run every check of a profile on its hosts, and change nothing. Exit 5 on a FAIL, 10 if a check could not tell.

    \b
    Examples:
      deploy check profile=kimi-eagle3
      deploy check profile=kimi-eagle3 draft.path=new/ --hosts gpu1 --json
    """
    from deploy import checking, wish
    from deploy.session import Session

    wished = wish.load(None, options)
    with Session(options.command("check")) as session:
        session.open(wished.hosts, locked=False)
        return checking.report(wished, options, session)
