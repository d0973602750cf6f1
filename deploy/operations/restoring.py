"""What ran before, brought back by its own run, draft and secrets: after a baseline, and after candidates."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from deploy import record
from deploy.deployment import rollback, state
from deploy.deployment.releases import LINK
from deploy.deployment.state import Place, Run
from deploy.errors import DeployError, Interrupted
from deploy.logs import failures
from deploy.operations import running
from deploy.operations.deploying import course, teach
from deploy.operations.running import Running
from deploy.options import Options
from deploy.plan import Plan, Replica
from deploy.project import home
from deploy.remote import Remote
from deploy.swapping import Hot
from deploy.walk import walking
from deploy.walk.recipe import AGAIN, CLEARED
from deploy.walk.session import Session
from deploy.walk.walking import Walked

UNLINK = 'rm -f -- "$1"'


@dataclass(frozen=True)
class Before:
    """What the hosts had before anything was tried on them: the deployment, and the run that a rollback went to."""

    found: Running
    previous: Mapping[str, str | None]
    alive: bool

    @property
    def run(self) -> str:
        return next(iter(self.found.runs.values())).id

    @property
    def ids(self) -> frozenset[str]:
        """Replicas that were started apart have runs of their own."""
        return frozenset(run.id for run in self.found.runs.values())

    @property
    def instead(self) -> dict[str, str]:
        """By host, what is to be brought back from what is tried in its place."""
        return {name: run.id for name, run in self.found.runs.items()} if self.alive else {}


def seen(found: Running, session: Session) -> Before:
    """What is there now, on locked hosts; `found` may be what a broken off trial was to bring back (`meant`)."""
    deployments = {name: session.machines[name].deployments[found.name] for name in found.runs}
    previous = {name: one.previous.id if one.previous else None for name, one in deployments.items()}
    kept = {name: None if run == found.runs[name].id else run for name, run in previous.items()}
    current = [one.current for one in deployments.values() if one.current]
    return Before(found, kept, any(run.instead or _may_serve(run) for run in current))


def _may_serve(run: Run) -> bool:
    """Whether it may: a server may live on without its launcher."""
    return not run.stopped and (run.alive or (run.left > 0 and not run.exit))


def meant(found: Running, session: Session) -> Running:
    """What is to run, on locked hosts: where the client of a trial was killed, not what it left, but the run in whose
    place that is. What was left is that itself where its hosts have the other one not any more.
    """
    ids = {name: run.instead for name, run in found.runs.items() if run.instead}  # none where it was never reached
    if not ids:
        return found
    remotes, machines = session.remotes, session.machines
    runs = {name: state.one(remotes[name], f"{machines[name].root}/{found.name}/runs/{ids[name]}") for name in ids}
    whole = {name: run for name, run in runs.items() if run and run.node}
    if len(whole) < len(runs):
        return found
    left = found.runs[next(iter(ids))]
    session.emit("noted", f"run {left.id} was only tried, and left by a client that died: run {left.instead} is meant")
    return replace(found, runs={**found.runs, **whole})


def stays(deployment: str, session: Session) -> None:
    """What runs now is not only tried any more."""

    def write(remote: Remote) -> None:
        run = session.machines[remote.host.name].current(deployment)
        if run and run.instead:
            remote.write(run.folder, {"manifest.json": json.dumps({**(run.manifest or {}), "instead": ""}, indent=1)})

    session.each(write)


def serves(runs: Mapping[str, Run], deployment: str, session: Session) -> bool:
    """Whether these very runs are what their hosts have, and live as they did; what is torn lives, and serves not."""
    now = {name: session.machines[name].current(deployment) for name in runs}
    return all(one and not one.torn and _life(one) == _life(runs[name]) for name, one in now.items())


def _serves(replica: Replica, found: Running, session: Session) -> bool:
    return serves({node.host.name: found.runs[node.host.name] for node in replica.nodes}, found.name, session)


def _life(run: Run) -> tuple[str, bool, str]:
    return run.id, run.alive, run.stopped


def on_trial(session: Session, deployment: str, kept: Collection[str]) -> None:
    """Let what runs now, but for the runs `kept`, not become what a rollback goes to: it is only tried."""
    for name, machine in session.machines.items():
        found = machine.deployments.get(deployment)
        if found and found.current and found.current.id not in kept:
            tried = replace(found, current=replace(found.current, verdict=None))
            session.machines[name] = replace(machine, deployments={**machine.deployments, deployment: tried})


def restored(before: Before, options: Options, session: Session, hot: Hot = "never") -> Walked | None:
    """Bring back what ran before, if it is not what runs, and let a rollback go where it would have gone then.

    Where nothing ran, what runs now is ended. None where nothing was to be done.
    """
    session.renew()
    name, done = before.found.name, None
    if before.alive and not serves(before.found.runs, name, session):
        session.emit("noted", f"run {before.run} is brought back")
        done = again(before.found, before.ids, options, session, hot)
    elif not before.alive and any(_lives(session, name, host) for host in before.found.runs):
        session.emit("noted", "nothing ran before: what was tried is ended")
        done = ended(name, options, session)
        _link(before, "current", {host: run.id for host, run in before.found.runs.items()}, session)
    if done is None or done.code == 0:
        _link(before, "previous", before.previous, session)
    return done


def again(found: Running, kept: Collection[str], options: Options, session: Session, hot: Hot = "never") -> Walked:
    """Start these runs again, through the smoke test; what they measured is theirs still. Hosts were just renewed.

    A replica that serves its run is left alone: it may take long to load.
    """
    run = f"{record.new_id()}-again"
    on_trial(session, found.name, kept)
    teach(session, failures.load(home(options)))
    replicas = found.plan().replicas
    plan = Plan(found.name, tuple(one for one in replicas if not _serves(one, found, session)))
    if alone := [one.head.host.name for one in replicas if one not in plan.replicas]:
        session.emit("noted", f"{', '.join(alone)}: it never stopped serving there, and is left alone")
    for name in (node.host.name for node in plan.nodes):
        source = found.runs[name]
        said = str((source.manifest or {}).get("command", session.command))
        rollback.prepared(Place(session.machines[name], found.name, run, source=source), session.remotes[name], said)
    hot = "try" if hot == "only" else hot  # what was tried need not be exchangeable for it
    courses = [course(replica, AGAIN, session, trial=True, hot=hot) for replica in plan.replicas]
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
