"""`deploy smoke`: ask the running server the profile's question."""

from __future__ import annotations

import click

from deploy.commands._options import shared
from deploy.options import Options


@click.command
@shared
def smoke(options: Options) -> int:
    """Ask what runs the profile's question, and look at the answer.

    \b
    Examples:
      deploy smoke
      deploy smoke smoke.ask="What is the capital of Italy?" smoke.expect=Rome
    """
    from deploy import deploying, record, running
    from deploy.recipe import SMOKE
    from deploy.session import Session

    with Session(options.command("smoke")) as session:
        silent = running.ask(options, session)
        plan = running.narrowed(options, running.the_one(options, session))
        code = deploying.walk(running.courses(plan, SMOKE, session), plan, options, session, record.new_id())
        return code or (3 if silent else 0)  # it may be on a host that did not answer as well
