"""Walks replicas through their recipes: replicas side by side, steps in order, hosts side by side within a step."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from deploy import hooks
from deploy.deployment import rollback
from deploy.errors import DeployError, Interrupted, LaunchFailed, Locked, NotReady, SmokeFailed, Unreachable
from deploy.events import GONE_BACK
from deploy.plan import Node
from deploy.remote import Remote
from deploy.server import death, evidence
from deploy.steps.stop import stop
from deploy.swapping import Hot
from deploy.walk.course import Course, Failure, in_place, restarting, where
from deploy.walk.recipe import BACK, PROVE, ROLLBACK, Step, taken

CLEAR = (Unreachable, Locked, LaunchFailed, Interrupted)  # say why themselves
TELLING = (LaunchFailed, NotReady, SmokeFailed)  # of a server that its hosts can be looked at for


def run(courses: list[Course]) -> list[Failure]:
    """Walk all replicas; every failed host is in the answer, in the plan's order."""
    if not courses:
        return []
    with ThreadPoolExecutor(len(courses), thread_name_prefix="replica") as pool:
        return [failure for failures in pool.map(_walk, courses) for failure in failures]


def _walk(course: Course) -> list[Failure]:
    recipe = tuple(step for step in taken(course.recipe, [course.replica]) if step.name not in course.done)
    for number, step in enumerate(recipe):
        failures = _interruption(course, step) or _step(course, step)
        if failures and (cold := restarting(course, failures)):
            return _walk(cold)
        if failures:
            _look(course, step, failures)
            _skip(course, [(one, node) for one in recipe[number + 1 :] for node in one.nodes(course.replica)])
            _afterwards(course, failures)
            return failures
        course.done.append(step.name)
    return []


def _interruption(course: Course, step: Step) -> list[Failure]:
    """Between two steps it is safe to stop."""
    if not course.interrupted.is_set():
        return []
    return [Failure(course.replica.head.host.name, step.name, Interrupted(where(course, step.name, "before")))]


def _step(course: Course, step: Step) -> list[Failure]:
    """One step on its hosts, side by side. All finish before a failure is told; the first one stops the waiting."""
    failures: list[Failure] = []
    for nodes in step.waves(course.replica, lambda node: course.remote(node).place.follows):
        if failures:
            _skip(course, [(step, node) for node in nodes])
            continue
        with ThreadPoolExecutor(len(nodes), thread_name_prefix=step.name) as pool:
            found = list(pool.map(lambda node: _on_host(course, step, node), nodes))
        failures = [failure for failure in found if failure]
    causes = [failure for failure in failures if not isinstance(failure.error, Interrupted)] or failures
    return _deaths(course, step, causes) or causes


def _deaths(course: Course, step: Step, failures: list[Failure]) -> list[Failure]:
    """Where what was asked did not answer because it is dead, or one of its other hosts is: that is what failed."""
    if step not in PROVE or not failures or any(isinstance(failure.error, CLEAR) for failure in failures):
        return []
    found = []
    for node in course.replica.nodes:
        with suppress(DeployError):  # who cannot be looked at is not called dead
            if dead := death.look(node, course.remote(node)):
                found.append(Failure(node.host.name, step.name, dead))
    return found


def _look(course: Course, step: Step, failures: list[Failure]) -> None:
    """Evidence of all hosts of the replica, side by side, before anything is stopped: in a group, the one that failed
    first need not be the one that is to blame. A host that is lost, or that somebody else may act on, is left alone.
    """
    if step not in PROVE or not any(isinstance(failure.error, TELLING) for failure in failures):
        return
    lost = {failure.host for failure in failures if isinstance(failure.error, Unreachable | Locked)}
    nodes = [node for node in course.replica.nodes if node.host.name not in lost]
    for node in nodes:
        course.remote(node).step = step.name
    with ThreadPoolExecutor(len(nodes), thread_name_prefix="evidence") as pool:
        list(pool.map(lambda node: evidence.collect(node, course.remote(node)), nodes))


def _on_host(course: Course, step: Step, node: Node) -> Failure | None:
    remote, started = course.remote(node), time.monotonic()
    remote.step = step.name
    remote.emit("step_started")
    try:
        outcome = step.verb(node, remote)
    except DeployError as error:
        course.abort.set()
        if isinstance(error, Interrupted) and course.interrupted.is_set():
            error = Interrupted(where(course, step.name, "in"))
        return Failure(node.host.name, step.name, _lapse(remote, error) or error)
    except Exception:  # noqa: BLE001 - whatever else it is, is our bug: told whole, and the other hosts finish
        course.abort.set()
        remote.emit("crashed", traceback.format_exc())
        return Failure(
            node.host.name, step.name, DeployError("this is a bug of deploy; its traceback is in the record")
        )
    remote.emit("step_ended", outcome, seconds=round(time.monotonic() - started, 3))
    return None


def _lapse(remote: Remote, error: DeployError) -> Locked | None:
    """That our lease on the host lapsed, where it did: what a step met after that may be somebody else's work."""
    if remote.lease is None or isinstance(error, Locked):
        return None
    try:
        remote.change(":")
    except Locked as lapsed:
        return lapsed
    except DeployError:  # the step's own words tell what is wrong with the host
        return None
    return None


def _skip(course: Course, taken: Iterable[tuple[Step, Node]]) -> None:
    for step, node in taken:
        remote = course.remote(node)
        remote.step = step.name
        remote.emit("step_skipped")


def _afterwards(course: Course, failures: list[Failure]) -> None:
    """Tell the failures, run the `failed` hooks, and stop the server if the profile says so."""
    _way_back(course, failures[0].error)
    for failure in failures:
        remote = course.remotes[failure.host]
        remote.step = failure.step
        tell(failure, remote)
    if all(isinstance(failure.error, Interrupted) for failure in failures):
        return
    course.abort.clear()  # what follows may wait again
    lapsed = {failure.host for failure in failures if isinstance(failure.error, Locked)}
    for node in course.replica.nodes:
        if node.host.name not in lapsed:  # there, nothing may be done any more
            _after_failure(course, node)
    undone = course.replica.head.profile.on_failure == "rollback" and course.recipe not in BACK
    if undone and not course.trial and course.begun:
        _roll_back(course)


def _way_back(course: Course, error: DeployError) -> None:
    """Where an earlier server was stopped for what failed, and stays so, the error's remedy says how it comes back: by
    its name, since for its host it may be the current run still, and no earlier one.
    """
    head = course.replica.head
    undone = course.recipe not in BACK and not course.trial and not {"stop", "swap"}.isdisjoint(course.done)
    comes_back = head.profile.on_failure == "rollback" and course.begun
    if not undone or comes_back or isinstance(error, Interrupted | Locked):
        return
    place = course.remote(head).place
    good = place.current if place.current and place.current.good else place.previous
    if good:
        gone = "is stopped" if "stop" in course.done else "is not loaded any more"
        back = f"deploy rollback {good.id} profile={head.deployment}"
        way = f"the last good run, {good.id}, {gone}; this brings it back: {back}"
        error.remedy = "\n".join(part for part in (error.remedy, way) if part)


def _roll_back(course: Course) -> None:
    """Bring back what served before; the run has failed all the same."""
    head = course.remote(course.replica.head)
    head.step = "failed"
    try:
        back = rollback.replica(
            course.replica.head.deployment, f"{head.place.run}{GONE_BACK}", course.remotes, "on_failure: rollback"
        )
    except DeployError as error:
        tell(Failure(head.host.name, "failed", error), head)
        return
    head.emit("noted", f"on_failure is rollback: back to run {rollback.source(back, course.remotes)}")
    hot: Hot = "try" if "swap" in course.done else "never"
    if not _walk(in_place(Course(back, ROLLBACK, course.remotes, course.abort, course.interrupted), hot)):
        head.emit("noted", f"run {rollback.source(back, course.remotes)} serves again")


def tell(failure: Failure, remote: Remote) -> None:
    """The failure as an event."""
    error = failure.error
    remote.emit(
        "failed",
        error.what,
        evidence=error.evidence,
        remedy=error.remedy,
        exit_code=error.exit_code,
        error=type(error).__name__,
    )


def _after_failure(course: Course, node: Node) -> None:
    remote = course.remote(node)
    remote.step = "failed"
    try:
        if node.profile.hooks.failed:
            remote.say(hooks.run("failed", node, remote))
        if node.profile.on_failure == "stop" and not course.trial and course.begun:
            remote.say(f"on_failure is stop: {stop(node, remote)}")
    except DeployError as error:
        tell(Failure(node.host.name, "failed", error), remote)
