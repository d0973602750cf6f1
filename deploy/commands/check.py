"""`deploy check`: what can be known before the load, alone."""

from __future__ import annotations

import click

from deploy.commands._options import looking
from deploy.options import Options


@click.command
@click.option(
    "--deep",
    metavar="NAME,...",
    default="",
    help="Measure as well: links (between hosts); with a profile disk, nccl (between its GPUs).",
)
@looking()
def check(options: Options, deep: str) -> int:
    """Run every check on hosts, and change nothing: those of a profile, or without one, of the hosts alone.

    Exit 5 on a FAIL, 3 if a host cannot be reached, 10 if a check could not tell.

    \b
    Examples:
      deploy check
      deploy check --hosts 'gpu[1-4]' --json
      deploy check profile=kimi-eagle3 draft.path=new/
      deploy check profile=kimi-eagle3 --deep disk,links,nccl
    """
    from deploy import inventory, probes, project, wish
    from deploy.operations import checking, running
    from deploy.walk.session import Session

    wanted = probes.named(deep)
    with Session(options.command("check")) as session:
        if options.words:
            wished = wish.load(None, options)
            failed = session.ask(wished.hosts)
            running.reached(failed, session)
            found = checking.of_profile(wished, session, wanted)
        else:
            failed = session.connect(running.named(options, inventory.load(project.home(options).inventory)))
            running.reached(failed, session)
            found = checking.of_hosts(session, wanted)
        return checking.report(found, failed, as_json=options.json)
