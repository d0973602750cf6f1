"""`deploy down`: end a deployment."""

from __future__ import annotations

import json
import sys

import click

from deploy.commands._options import shared
from deploy.options import Options


@click.command
@shared
def down(options: Options) -> int:
    """Stop a deployment, and prove that its processes, its port and its GPU memory are gone.

    Run folders and releases stay: logs are evidence.

    \b
    Examples:
      deploy down
      deploy down profile=kimi-eagle3 --hosts gpu2 -y
    """
    from deploy import record
    from deploy.operations import running
    from deploy.walk import walking
    from deploy.walk.recipe import DOWN, STOP
    from deploy.walk.session import Session

    with Session(options.command("down")) as session:
        running.only_profile(options)
        running.ask(options, session, all_must_answer=True)
        if not options.words and not any(one.alive for one in running.deployments(session).values()):
            click.echo("nothing runs", err=True)
            if options.json:
                click.echo(json.dumps({"exit_code": 0, "verdict": {}, "failures": []}))
            return 0
        found = running.the_one(options, session)
        if found.alive and not options.yes and sys.stdin.isatty():
            click.confirm(f"Stop {found.name} on {', '.join(found.runs)}?", abort=True, err=True)
        found = running.locked(found, session)
        plan = found.plan_to_stop()
        recipe = DOWN if found.told else STOP
        return walking.walk(running.courses(plan, recipe, session), plan, options, session, record.new_id())
