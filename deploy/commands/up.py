"""`deploy up`: make what the profile says run, and prove that it does."""

from __future__ import annotations

import click

from deploy.commands._options import shared
from deploy.options import Options


@click.command
@shared
def up(options: Options) -> int:
    """Bring a profile up on its hosts; what already serves it is verified, not restarted.

    \b
    Examples:
      deploy up profile=kimi-eagle3
      deploy up profile=kimi-eagle3 draft.path=fixed/ --hosts gpu[1-2]
      deploy up profile=local waive=[ckpt] --json
    """
    from deploy import wish
    from deploy.operations import deploying
    from deploy.operations.deploying import How
    from deploy.walk.session import Session

    wished = wish.load(None, options)
    with Session(options.command("up")) as session:
        session.open(wished.hosts, locked=True)
        return deploying.bring_up(wished, options, session, How())
