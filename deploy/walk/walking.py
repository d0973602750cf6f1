"""A walk over hosts in hand, with a view and a record, and how it ended."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

import click

from deploy import record, render
from deploy.deployment import secret
from deploy.deployment.state import Run
from deploy.events import GONE_BACK, Event
from deploy.options import Options
from deploy.plan import Node, Plan
from deploy.record import Recorder
from deploy.walk import filing, stops
from deploy.walk.course import Course, Failure
from deploy.walk.readers import Readers
from deploy.walk.recipe import IN_PLACE, PROVE, REPLACE, VERIFY, taken
from deploy.walk.session import Session

HEAVIEST = ("replace", "swap", "verify")  # of several replicas, what was the most to any of them is told


@dataclass(frozen=True)
class Walked:
    """How a walk ended: its run, the exit code, what was measured as the record sums it up, the steps that came to
    their end, and what failed; all of it as it may be shown.
    """

    run: str
    code: int
    summary: Mapping[str, Any]
    ended: frozenset[str]
    failures: Sequence[Mapping[str, str]]

    def to_json(self) -> dict[str, Any]:
        """The document of `--json`."""
        return {"run": self.run, "exit_code": self.code, **self.summary, "failures": list(self.failures)}


def walk(courses: list[Course], plan: Plan, options: Options, session: Session, run: str) -> int:
    """Walk the courses with a view and a record, and tell how it ended; the exit code."""
    return told(walked(courses, plan, options, session, run), options)


def told(done: Walked, options: Options) -> int:
    """The document, for who asked for one; the exit code."""
    if options.json:
        click.echo(json.dumps(done.to_json(), indent=1))
    return done.code


def walked(courses: list[Course], plan: Plan, options: Options, session: Session, run: str) -> Walked:
    """Walk the courses with a view and a record."""
    started = time.monotonic()
    with closing(_readers(plan, options, run, session)) as readers:
        kept = filing.Filing(plan.nodes, session.remotes, _recorded_in(options))
        proves = any(step in PROVE for course in courses for step in course.recipe)
        with stops.heard(lambda: session.interrupt(courses)):
            readers.on(_opening(courses, plan, session, run))
            for event in kept.begun() if proves else ():
                readers.on(event)
            failures = session.walk(courses, readers)
        with suppress(KeyboardInterrupt):  # the run itself is over
            for event in kept.ended(failures) if proves else ():
                readers.on(event)
        with stops.heard(lambda: None):  # and its end is told
            summary = _summary(courses, readers)
            code = readers.finish(failures, round(time.monotonic() - started, 3), summary)
            session.outcome = (code, readers.told[-1].text)
    shown = readers.masked({"summary": summary, "failures": _told(failures)})
    ended = frozenset(event.step for event in readers.told if event.kind == "step_ended")
    return Walked(run, code, shown["summary"], ended, shown["failures"])


def _readers(plan: Plan, options: Options, run: str, session: Session) -> Readers:
    view = render.choose(
        output=options.output,
        verbosity=options.verbosity,
        environ=os.environ,
        stdout=sys.stdout,
        stderr=sys.stderr,
    )
    for node in plan.nodes:
        learn(node, session, session.remotes[node.host.name].place.source)  # one that was named may be any of its runs
    return Readers(view, Recorder(record.runs_folder(_recorded_in(options), os.environ) / run), session.hidden)


def learn(node: Node, session: Session, source: Run | None = None) -> None:
    """Which secrets may come back from a host, to be hidden: ours, those of the runs that it has and of the source."""
    remote, found = session.remotes[node.host.name], session.machines[node.host.name].deployments.get(node.deployment)
    session.hidden += [os.environ[name] for name in node.profile.secrets if name in os.environ]
    known = [found.current, found.previous, found.source] if found else []
    for values in secret.of_runs([*known, source], remote):
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
            "plan": filing.plan(plan),
        },
    )


def _recorded_in(options: Options) -> Any:
    from deploy import project

    found = project.find(chosen=options.project)
    return found.root if found else None


def _summary(courses: list[Course], readers: Readers) -> dict[str, Any]:
    told = [verdict for verdict in readers.facts("verdict") if isinstance(verdict, Mapping)]  # a finding has a word
    verdicts = [verdict for verdict in told if not str(verdict.get("run")).endswith(GONE_BACK)]
    modes = [_mode(course) for course in courses if course.recipe in (VERIFY, REPLACE, IN_PLACE[REPLACE])]
    waived = {e.facts["check"] for e in readers.told if e.facts.get("waived") and e.facts["verdict"] == "FAIL"}
    gates: Mapping[str, Any] = verdicts[-1] if verdicts else {}
    mode = next((mode for mode in HEAVIEST if mode in modes), None)
    found = {"mode": mode, "waived": sorted(waived), **gates}
    return {"verdict": {name: value for name, value in found.items() if value not in (None, [])}}


def _mode(course: Course) -> str:
    """As what it ended: an exchange may have become a restart."""
    if course.recipe is VERIFY:
        return "verify"
    return "swap" if course.recipe is not REPLACE and "stop" not in course.done else "replace"


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
