"""`deploy rollback`: the last run that had passed its gates, again."""

from __future__ import annotations

import click

from deploy.commands._options import shared
from deploy.options import Options


@click.command
@shared
def rollback(options: Options) -> int:
    """Go back to the last run that had passed its gates: its command, its own secrets, its draft, the same gates.

    \b
    Examples:
      deploy rollback
      deploy rollback profile=kimi-eagle3 --json
    """
    from deploy import deploying, record, running
    from deploy.session import Session

    with Session(options.command("rollback")) as session:
        running.only_profile(options)
        running.ask(options, session, all_must_answer=True)
        found = running.the_one(options, session)
        found = running.locked(found, session)
        return deploying.go_back(found.plan(), options, session, record.new_id())
