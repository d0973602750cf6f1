"""`deploy bench --baseline`: the same server without speculation, measured and kept; then what ran before again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from deploy import plan, record
from deploy.bench import baseline, benching
from deploy.deployment import secret
from deploy.deployment.state import Asked
from deploy.errors import DeployError, Interrupted
from deploy.logs import failures
from deploy.measuring.measurement import Measurement
from deploy.operations import restoring, running
from deploy.operations.deploying import course, key, place, teach
from deploy.operations.restoring import Before
from deploy.operations.running import Running
from deploy.options import Options
from deploy.plan import Plan
from deploy.project import home
from deploy.walk import walking
from deploy.walk.recipe import BASELINE, KEEP
from deploy.walk.session import Session
from deploy.walk.walking import Walked


@dataclass(frozen=True)
class Made:
    """How it went, what was measured by head, and the run as which what ran before is back ("": it was never gone)."""

    walked: Walked
    measured: Mapping[str, Measurement]
    back: str = ""


def make(found: Running, asked: Plan, options: Options, session: Session) -> Made:
    """Make the baseline of what runs, on locked hosts.

    `asked` is the plan of what runs, with what this command line asks of it. What does not speculate is its own
    baseline: nothing is restarted, but for what a trial whose client died has put in its place. DeployError where what
    ran before is not back.
    """
    before = restoring.seen(found, session)
    if not any(baseline.speculates(node) for node in asked.nodes):
        back = restoring.demanded(before, restoring.restored(before, options, session)) if before.alive else ""
        session.renew()
        courses = running.courses(asked, KEEP, session)
        running.once(asked, found, session)
        done = walking.walked(courses, asked, options, session, record.new_id())
        return Made(done, measured(done, asked, session), back)
    plain = without_speculation(asked)
    stopped: DeployError | None = None
    try:
        made = _made(before, plain, options, session)
    except KeyboardInterrupt:  # between two walks; in one it ends that
        stopped = Interrupted(f"stopped; run {before.run} serves as before", remedy="run the command again")
    except DeployError as error:
        stopped = error
    try:
        restored = restoring.restored(before, options, session)
    except (DeployError, KeyboardInterrupt) as error:
        raise restoring.way_back(before, error) from error
    back = restoring.demanded(before, restored)
    if stopped:
        raise stopped
    return replace(made, back=back)


def measured(done: Walked, asked: Plan, session: Session) -> dict[str, Measurement]:
    """By head, what a walk has measured."""
    if "bench" not in done.ended:
        return {}
    heads = [replica.head.host.name for replica in asked.replicas]
    found = {name: benching.read(session.remotes[name]) for name in heads}
    return {name: one for name, one in found.items() if one}


def without_speculation(asked: Plan) -> Plan:
    """The same servers on the same hosts, without draft and speculation."""
    first = asked.nodes[0].profile
    return plan.make({node.host: baseline.plain(node.profile) for node in asked.nodes}, None, baseline.installed(first))


def _made(before: Before, plain: Plan, options: Options, session: Session) -> Made:
    """Walk the servers through it; each stands for the run that it takes the place of, in whose words it can be
    restarted.
    """
    teach(session, failures.load(home(options)))
    run = f"{record.new_id()}-baseline"
    asked = Asked(session.command, before.found.words(), before.found.ckpt())
    for node in plain.nodes:
        secret.values(node)  # a missing one is told before anything is touched
        remote = session.remotes[node.host.name]
        wished = replace(asked, instead=before.instead.get(node.host.name, ""))
        remote.place = place(node, run, session, wished, key=key(node, None, remote))
    courses = [course(replica, BASELINE, session, trial=True) for replica in plain.replicas]
    session.emit("decided", "the same without speculation, to be measured", mode="replace", hosts=list(session.remotes))
    done = walking.walked(courses, plain, options, session, run)
    return Made(done, measured(done, plain, session))
