"""`deploy smoke`: prove what runs, and ask it the profile's questions."""

from __future__ import annotations

import click

from deploy.commands._options import shared
from deploy.options import Options


@click.command
@shared
def smoke(options: Options) -> int:
    """Prove what runs, ask it the profile's questions, and look at the answers.

    Requests and answers are recorded whole: `deploy history last --replay --jsonl` shows them.

    \b
    Examples:
      deploy smoke
      deploy smoke smoke.ask="What is the capital of Italy?" smoke.expect=Rome
    """
    from deploy import record
    from deploy.logs import failures
    from deploy.operations import deploying, running
    from deploy.project import home
    from deploy.walk import walking
    from deploy.walk.recipe import SMOKE
    from deploy.walk.session import Session

    with Session(options.command("smoke")) as session:
        silent = running.ask(options, session)
        deploying.teach(session, failures.load(home(options)))  # it may have died
        plan = running.narrowed(options, running.the_one(options, session))
        code = walking.walk(running.courses(plan, SMOKE, session), plan, options, session, record.new_id())
        return code or (3 if silent else 0)  # it may be on a host that did not answer as well
