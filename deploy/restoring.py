"""What ran before, brought back by its own run, draft and secrets: after a baseline, and after candidates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from deploy import failures, record, rollback, running, walking
from deploy.deploying import course, teach
from deploy.errors import DeployError, Interrupted
from deploy.options import Options
from deploy.project import home
from deploy.recipe import AGAIN, CLEARED
from deploy.releases import LINK
from deploy.remote import Remote
from deploy.running import Running
from deploy.session import Session
from deploy.state import Place, Run
from deploy.walking import Walked

UNLINK = 'rm -f -- "$1"'


@dataclass(frozen=True)
class Before:
    """What the hosts had before anything was tried on them: the deployment, and the run that a rollback went to."""

    found: Running
    previous: Mapping[str, str | None]

    @property
    def run(self) -> str:
        return next(iter(self.found.runs.values())).id

    @property
    def alive(self) -> bool:
        return any(run.alive and not run.stopped for run in self.found.runs.values())


def seen(found: Running, session: Session) -> Before:
    """What is there now, on locked hosts."""
    deployments = {name: session.machines[name].deployments[found.name] for name in found.runs}
    return Before(found, {name: one.previous.id if one.previous else None for name, one in deployments.items()})


def serves(runs: Mapping[str, Run], deployment: str, session: Session) -> bool:
    """Whether these very runs are what their hosts have, and live as they did."""
    now = {name: session.machines[name].current(deployment) for name in runs}
    return all(one and (one.id, one.alive, one.stopped) == _life(runs[name]) for name, one in now.items())


def _life(run: Run) -> tuple[str, bool, str]:
    return run.id, run.alive, run.stopped


def on_trial(session: Session, deployment: str, kept: str) -> None:
    """Let what runs now, but for the run `kept`, not become what a rollback goes to: it is only tried."""
    for name, machine in session.machines.items():
        found = machine.deployments.get(deployment)
        if found and found.current and found.current.id != kept:
            tried = replace(found, current=replace(found.current, verdict=None))
            session.machines[name] = replace(machine, deployments={**machine.deployments, deployment: tried})


def restored(before: Before, options: Options, session: Session) -> Walked | None:
    """Bring back what ran before, if it is not what runs, and let a rollback go where it would have gone then.

    Where nothing ran, what runs now is ended. None where nothing was to be done.
    """
    session.renew()
    name, done = before.found.name, None
    if before.alive and not serves(before.found.runs, name, session):
        session.emit("noted", f"run {before.run} is brought back")
        done = again(before.found, before.run, options, session)
    elif not before.alive and any(_lives(session, name, host) for host in before.found.runs):
        session.emit("noted", "nothing ran before: what was tried is ended")
        done = ended(name, options, session)
        _link(before, "current", {host: run.id for host, run in before.found.runs.items()}, session)
    if done is None or done.code == 0:
        _link(before, "previous", before.previous, session)
    return done


def again(found: Running, kept: str, options: Options, session: Session) -> Walked:
    """Start these runs again, through the smoke test; what they measured is theirs still. Hosts were just renewed."""
    run = f"{record.new_id()}-again"
    on_trial(session, found.name, kept)
    teach(session, failures.load(home(options)))
    for name, source in found.runs.items():
        said = str((source.manifest or {}).get("command", session.command))
        rollback.prepared(Place(session.machines[name], found.name, run, source=source), session.remotes[name], said)
    plan = found.plan()
    courses = [course(replica, AGAIN, session, trial=True) for replica in plan.replicas]
    return walking.walked(courses, plan, options, session, run)


def ended(deployment: str, options: Options, session: Session) -> Walked:
    """End what runs of the deployment, whatever it is."""
    plan = running.deployments(session)[deployment].plan_to_stop()
    return walking.walked(running.courses(plan, CLEARED, session), plan, options, session, record.new_id())


def demanded(before: Before, back: Walked | None) -> str:
    """As which run it is back ("": it was never gone); an error where it is not."""
    if back is None:
        return ""
    if back.code:
        why = "; ".join(failure["what"] for failure in back.failures)
        raise way_back(before, Interrupted(why) if back.code == Interrupted.exit_code else DeployError(why))
    return back.run


def way_back(before: Before, error: BaseException) -> DeployError:
    """What to say where it could not be brought back: what is true is not what was promised."""
    kind = Interrupted if isinstance(error, Interrupted | KeyboardInterrupt) else DeployError
    return kind(
        f"run {before.run}, which ran before, is not back",
        evidence=str(error),
        remedy=f"deploy rollback {before.run} profile={before.found.name} starts it; deploy status says what runs",
    )


def _lives(session: Session, deployment: str, host: str) -> bool:
    run = session.machines[host].current(deployment)
    return bool(run and (run.alive or run.left))


def _link(before: Before, link: str, runs: Mapping[str, str | None], session: Session) -> None:
    """Let a link of each host name this run, or none."""

    def set_link(remote: Remote) -> None:
        path = f"{session.machines[remote.host.name].root}/{before.found.name}/{link}"
        run = runs.get(remote.host.name)
        if run:
            remote.change(LINK, f"runs/{run}", path)
        elif remote.host.name in runs:
            remote.change(UNLINK, path)

    session.each(set_link)
