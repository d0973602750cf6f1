"""`deploy rollback`: the last run that had passed its gates, again, or another one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from deploy.commands._options import exchange, shared, takes
from deploy.options import Options

if TYPE_CHECKING:
    from deploy.operations.running import Running
    from deploy.swapping import Hot
    from deploy.walk.session import Session


@click.command
@exchange
@takes("[RUN] [profile=NAME]")
@shared
def rollback(options: Options, hot: Hot) -> int:
    """Go back to the last run that had passed its gates: its command, its own secrets, its draft, the same gates.

    RUN is another one that the hosts still have: its name, the beginning of it, or the name of a run here that looked
    at it. A run that never passed its gates may be named as well; they judge it again.

    \b
    Examples:
      deploy rollback
      deploy rollback 20261129-2015
      deploy rollback profile=kimi-eagle3 --json
    """
    from deploy import record
    from deploy.errors import ConfigError
    from deploy.operations import deploying, running
    from deploy.walk.session import Session

    runs = [word for word in options.words if "=" not in word and not word.startswith("~")]
    if len(runs) > 1:
        raise ConfigError(f"go back to {' or to '.join(runs)}?", remedy="name one run")
    others = replace(options, words=tuple(word for word in options.words if word not in runs))
    with Session(options.command("rollback")) as session:
        running.only_profile(others)
        running.ask(others, session, all_must_answer=True)
        found = running.the_one(others, session)
        wanted = _meant(runs[0], found, others, session) if runs else ""
        found = running.locked(found, session)
        return deploying.go_back(found.plan(), others, session, record.new_id(), wanted=wanted, hot=hot)


def _meant(word: str, found: Running, options: Options, session: Session) -> str:
    """The id that the hosts know a run by: one that only verified what ran is known here alone."""
    from deploy import record
    from deploy.commands._recorded import folder_of_runs
    from deploy.deployment import rollback
    from deploy.errors import ConfigError
    from deploy.runs import kept

    known = [session.machines[host].deployments.get(found.name) for host in found.runs]
    try:
        return rollback.named(word, known)
    except ConfigError as error:
        try:
            verified = kept.read(record.find(folder_of_runs(options.project), word)).verdict.get("run")
        except ConfigError:
            raise error from None
        if not isinstance(verified, str):
            raise
        return rollback.named(verified, known)
