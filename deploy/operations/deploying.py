"""The commands that change what runs: reach, lock, compare, ask, walk."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

import click

from deploy import record
from deploy.deployment import compare, drafts, rollback, secret
from deploy.deployment.state import Asked, Place, Run
from deploy.engines._log import Signature
from deploy.errors import ConfigError, Interrupted
from deploy.logs import failures
from deploy.operations import evicting
from deploy.options import Options
from deploy.plan import Node, Plan, Replica
from deploy.project import home
from deploy.remote import Remote
from deploy.swapping import Hot
from deploy.walk import walking
from deploy.walk.course import Course, in_place
from deploy.walk.recipe import REPLACE, ROLLBACK, VERIFY, Recipe
from deploy.walk.session import Session
from deploy.wish import Wish


@dataclass(frozen=True)
class How:
    """How what is wished comes to run: `fresh` replaces even what already serves it, `hot` says whether a draft may be
    exchanged in the running server. Of a `trial` it is for who tells it to decide what becomes of a failure, and to
    bring the runs `instead`, by host, back.
    """

    fresh: bool = False
    hot: Hot = "never"
    trial: bool = False
    instead: Mapping[str, str] = field(default_factory=dict)


def bring_up(wish: Wish, options: Options, session: Session, how: How) -> int:
    """Make what is wished run, on hosts in hand and locked."""
    return walking.told(brought_up(wish, options, session, how), options)


def brought_up(wish: Wish, options: Options, session: Session, how: How) -> walking.Walked:
    """The same, for who tells it."""
    teach(session, wish.known)
    with drafts.found(wish.profile, wish.inventory, session.remotes) as draft:
        session.hidden += [os.environ[name] for name in wish.profile.secrets if name in os.environ]
        plan = wish.plan(draft)
        _say_what_is_undone(wish, plan, options, session)
        run = record.new_id()
        courses = [_course(replica, run, wish, session, how) for replica in plan.replicas]
        courses = [replace(one, trial=how.trial) for one in evicting.asked(courses, session)]
        return walking.walked(courses, plan, options, session, run)


def go_back(found: Plan, options: Options, session: Session, run: str, *, wanted: str = "", hot: Hot = "never") -> int:
    """Bring the last good run of each replica back, or the one whose id is `wanted`, on hosts in hand and locked."""
    teach(session, failures.load(home(options)))
    courses = []
    for replica in found.replicas:
        remotes = {node.host.name: session.remotes[node.host.name] for node in replica.nodes}
        back = rollback.replica(found.deployment, run, remotes, session.command, wanted)
        session.emit("decided", f"back to run {rollback.source(back, remotes)}", mode="replace", hosts=list(remotes))
        courses.append(course(back, ROLLBACK, session, hot=hot))
    courses = evicting.asked(courses, session)
    return walking.walk(courses, Plan(found.deployment, tuple(c.replica for c in courses)), options, session, run)


def teach(session: Session, known: tuple[Signature, ...]) -> None:
    """Let a death on these hosts be explained by the user's rows as well."""
    for remote in session.remotes.values():
        remote.known = known


def _course(replica: Replica, run: str, wish: Wish, session: Session, how: How) -> Course:
    """Decide between replacing and verifying, and give each host its place."""
    asked = Asked(session.command, wish.words, wish.ckpt, how.instead.get(replica.head.host.name, ""))
    places = {node.host.name: place(node, run, session, asked) for node in replica.nodes}
    decision = compare.decide([(node, places[node.host.name]) for node in replica.nodes])
    verify = decision.mode == "verify" and not how.fresh
    why = "asked for a restart" if how.fresh and decision.mode == "verify" else decision.why
    session.emit("decided", why, mode="verify" if verify else "replace", hosts=[n.host.name for n in replica.nodes])
    for node in replica.nodes:
        if not verify:
            secret.values(node)  # a missing one is told before anything is touched
        remote, found = session.remotes[node.host.name], places[node.host.name]
        current = found.current if verify else None
        remote.place = replace(found, run=current.id if current else run, key=key(node, current, remote))
        if current:
            _remember(
                node, replace(asked, instead=asked.instead if asked.instead != current.id else ""), current, remote
            )
    return course(replica, VERIFY, session) if verify else course(replica, REPLACE, session, hot=how.hot)


def _remember(node: Node, asked: Asked, run: Run, remote: Remote) -> None:
    """What is only verified was asked for in these words, and is asked these questions, from now on."""
    manifest = json.dumps({**(run.manifest or {}), **asdict(asked), "node": node.to_json()}, indent=1)
    if json.loads(manifest) != run.manifest:
        remote.write(run.folder, {"manifest.json": manifest})


def place(node: Node, run: str, session: Session, asked: Asked, key: str = "") -> Place:
    """Where a new run would live, and what is there: the model on the disk, the engine."""
    remote, machine = session.remotes[node.host.name], session.machines[node.host.name]
    model = compare.model_identity(node, remote)
    return Place(machine, node.deployment, run, model, compare.installed_engine(node, remote), asked, key)


def course(replica: Replica, recipe: Recipe, session: Session, *, trial: bool = False, hot: Hot = "never") -> Course:
    """A replica on its way; its hosts, whose places are set, share one switch."""
    remotes = {node.host.name: session.remotes[node.host.name] for node in replica.nodes}
    head = session.remotes[replica.head.host.name]
    for remote in remotes.values():
        remote.abort, remote.head_ready = head.abort, head.head_ready
        remote.signs, remote.cases = head.signs, head.cases
        remote.mates = tuple(remotes)
    walk = Course(replica, recipe, remotes, head.abort, session.interrupted, trial=trial)
    return in_place(walk, hot)


def key(node: Node, run: Run | None, remote: Remote) -> str:
    """The server's API key: ours if we have it, else the one that the running server was given."""
    return secret.api_key_of(node.profile, run, remote) if run else secret.api_key(node.profile, os.environ)


def _say_what_is_undone(wish: Wish, plan: Plan, options: Options, session: Session) -> None:
    """A `restart --ckpt` that this `up` would undo is told before it is undone."""
    if wish.ckpt is not None:
        return
    for node in plan.nodes:
        run = session.machines[node.host.name].current(node.deployment)
        if run is None or not run.alive or run.torn or not run.manifest or not run.manifest.get("ckpt"):
            continue
        undone = run.manifest["ckpt"]
        if run.manifest["wished"] == node.digest:
            continue
        what = f"{node.host.name} serves {undone}, put there by `{run.manifest['command']}`; this up would undo it"
        _ask(what, f"keep it with: deploy up profile={node.deployment} draft.path={undone}", options)
        return


def _ask(what: str, remedy: str, options: Options) -> None:
    if options.yes:
        click.echo(f"{what} (-y)", err=True)
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ConfigError(what, remedy=f"say -y to go on, or {remedy}")
    click.echo(what, err=True)
    if not click.confirm("Go on?", err=True):
        raise Interrupted("stopped; nothing was touched", remedy=remedy)
