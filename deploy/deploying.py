"""The commands that change what runs: reach, lock, compare, ask, walk."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, replace
from typing import Any

import click

from deploy import compare, drafts, evicting, failures, record, render, rollback, secret
from deploy.engines._log import Signature
from deploy.errors import ConfigError, Interrupted
from deploy.events import GONE_BACK, Event
from deploy.options import Options
from deploy.plan import Node, Plan, Replica
from deploy.project import home
from deploy.readers import Readers
from deploy.recipe import REPLACE, ROLLBACK, VERIFY, Recipe, taken
from deploy.record import Recorder
from deploy.remote import Remote
from deploy.runner import Course, Failure
from deploy.session import Session
from deploy.state import Asked, Place, Run
from deploy.wish import Wish


def bring_up(wish: Wish, options: Options, session: Session, *, fresh: bool) -> int:
    """Make what is wished run, on hosts in hand and locked; `fresh` replaces even what already serves it."""
    teach(session, wish.known)
    with drafts.found(wish.profile, wish.inventory, session.remotes) as draft:
        session.hidden += [os.environ[name] for name in wish.profile.secrets if name in os.environ]
        plan = wish.plan(draft)
        _say_what_is_undone(wish, plan, options, session)
        run = record.new_id()
        courses = [_course(replica, run, wish, session, fresh=fresh) for replica in plan.replicas]
        return walk(evicting.asked(courses, session), plan, options, session, run)


def go_back(found: Plan, options: Options, session: Session, run: str) -> int:
    """Bring the last good run of each replica back, on hosts in hand and locked."""
    teach(session, failures.load(home(options)))
    courses = []
    for replica in found.replicas:
        remotes = {node.host.name: session.remotes[node.host.name] for node in replica.nodes}
        back = rollback.replica(found.deployment, run, remotes, session.command)
        session.emit("decided", f"back to run {rollback.source(back, remotes)}", mode="replace", hosts=list(remotes))
        courses.append(course(back, ROLLBACK, session))
    courses = evicting.asked(courses, session)
    return walk(courses, Plan(found.deployment, tuple(c.replica for c in courses)), options, session, run)


def teach(session: Session, known: tuple[Signature, ...]) -> None:
    """Let a death on these hosts be explained by the user's rows as well."""
    for remote in session.remotes.values():
        remote.known = known


def walk(courses: list[Course], plan: Plan, options: Options, session: Session, run: str) -> int:
    """Walk the courses with a view and a record; the exit code."""
    started = time.monotonic()
    with closing(_readers(plan, options, run, session)) as readers:
        readers.on(_opening(courses, plan, session, run))
        failures = session.walk(courses, readers)
        summary = _summary(courses, readers)
        code = readers.finish(failures, round(time.monotonic() - started, 3), summary)
        session.outcome = (code, readers.told[-1].text)
    if options.json:
        document = {"run": run, "exit_code": code, **summary, "failures": _told(failures)}
        click.echo(json.dumps(readers.masked(document), indent=1))
    return code


def _readers(plan: Plan, options: Options, run: str, session: Session) -> Readers:
    view = render.choose(
        output=options.output,
        verbosity=options.verbosity,
        environ=os.environ,
        stdout=sys.stdout,
        stderr=sys.stderr,
    )
    for node in plan.nodes:
        learn(node, session)
    return Readers(view, Recorder(record.runs_folder(_recorded_in(options), os.environ) / run), session.hidden)


def learn(node: Node, session: Session) -> None:
    """Which secrets may come back from a host, to be hidden: ours, and those of the runs that it has."""
    remote, found = session.remotes[node.host.name], session.machines[node.host.name].deployments.get(node.deployment)
    session.hidden += [os.environ[name] for name in node.profile.secrets if name in os.environ]
    for values in secret.of_runs([found.current, found.previous, found.source] if found else [], remote):
        session.hidden += values.values()


def _opening(courses: list[Course], plan: Plan, session: Session, run: str) -> Event:
    longest = max((taken(course.recipe, plan.replicas) for course in courses), key=len)
    return Event(
        "run_started",
        facts={
            "id": run,
            "command": session.command,
            "profile": plan.deployment,
            "deployment": plan.deployment,
            "recipe": [[step.name, step.scope, step.line] for step in longest],
            "hosts": [node.host.name for node in plan.nodes],
            "plan": plan.to_json(),
        },
    )


def _recorded_in(options: Options) -> Any:
    from deploy import project

    found = project.find(chosen=options.project)
    return found.root if found else None


def _course(replica: Replica, run: str, wish: Wish, session: Session, *, fresh: bool) -> Course:
    """Decide between replacing and verifying, and give each host its place."""
    asked = Asked(session.command, wish.words, wish.ckpt)
    places = {node.host.name: place(node, run, session, asked) for node in replica.nodes}
    decision = compare.decide([(node, places[node.host.name]) for node in replica.nodes])
    verify = decision.mode == "verify" and not fresh
    why = "asked for a restart" if fresh and decision.mode == "verify" else decision.why
    session.emit("decided", why, mode="verify" if verify else "replace", hosts=[n.host.name for n in replica.nodes])
    for node in replica.nodes:
        if not verify:
            secret.values(node)  # a missing one is told before anything is touched
        remote, found = session.remotes[node.host.name], places[node.host.name]
        current = found.current if verify else None
        remote.place = replace(found, run=current.id if current else run, key=key(node, current, remote))
        if current:
            _remember(node, asked, current, remote)
    return course(replica, VERIFY if verify else REPLACE, session)


def _remember(node: Node, asked: Asked, run: Run, remote: Remote) -> None:
    """What is only verified was asked for in these words, and is asked these questions, from now on."""
    manifest = json.dumps({**(run.manifest or {}), **asdict(asked), "node": node.to_json()}, indent=1)
    if json.loads(manifest) != run.manifest:
        remote.write(run.folder, {"manifest.json": manifest})


def place(node: Node, run: str, session: Session, asked: Asked) -> Place:
    """Where a new run would live, and what is there: the model on the disk, the engine."""
    remote, machine = session.remotes[node.host.name], session.machines[node.host.name]
    model = compare.model_identity(node, remote)
    return Place(machine, node.deployment, run, model, compare.installed_engine(node, remote), asked)


def course(replica: Replica, recipe: Recipe, session: Session) -> Course:
    """A replica on its way; its hosts share one switch."""
    remotes = {node.host.name: session.remotes[node.host.name] for node in replica.nodes}
    head = session.remotes[replica.head.host.name]
    for remote in remotes.values():
        remote.abort, remote.head_ready = head.abort, head.head_ready
        remote.signs, remote.cases = head.signs, head.cases
    return Course(replica, recipe, remotes, head.abort, session.interrupted)


def key(node: Node, run: Run | None, remote: Remote) -> str:
    """The server's API key: ours if we have it, else the one that the running server was given."""
    return secret.api_key_of(node.profile, run, remote) if run else secret.api_key(node.profile, os.environ)


def _say_what_is_undone(wish: Wish, plan: Plan, options: Options, session: Session) -> None:
    """A `restart --ckpt` that this `up` would undo is told before it is undone."""
    if wish.ckpt is not None:
        return
    for node in plan.nodes:
        run = session.machines[node.host.name].current(node.deployment)
        if run is None or not run.alive or not run.manifest or not run.manifest.get("ckpt"):
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


def _summary(courses: list[Course], readers: Readers) -> dict[str, Any]:
    told = [verdict for verdict in readers.facts("verdict") if isinstance(verdict, Mapping)]  # a finding has a word
    verdicts = [verdict for verdict in told if not str(verdict.get("run")).endswith(GONE_BACK)]
    modes = ["verify" if c.recipe is VERIFY else "replace" for c in courses if c.recipe in (VERIFY, REPLACE)]
    waived = {e.facts["check"] for e in readers.told if e.facts.get("waived") and e.facts["verdict"] == "FAIL"}
    gates: Mapping[str, Any] = verdicts[-1] if verdicts else {}
    found = {"mode": modes[0] if modes else None, "waived": sorted(waived), **gates}
    return {"verdict": {name: value for name, value in found.items() if value not in (None, [])}}


def _told(failures: list[Failure]) -> list[dict[str, Any]]:
    return [
        {
            "host": failure.host,
            "step": failure.step,
            "error": type(failure.error).__name__,
            "what": failure.error.what,
            "evidence": failure.error.evidence,
            "remedy": failure.error.remedy,
        }
        for failure in failures
    ]
