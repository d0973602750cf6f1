from __future__ import annotations

import time

from tenacity import (
    RetryError,
    Retrying,
    retry_if_result,
    sleep_using_event,
    stop_after_delay,
    stop_when_event_set,
    wait_exponential_jitter,
)

from deploy.errors import DeployError, Interrupted, LaunchFailed, NotReady
from deploy.plan import Node
from deploy.remote import Remote
from deploy.state import reread
from deploy.watch import Watch

ATTEMPT = 30.0  # seconds for one readiness answer: a first generation may be slow, and slow is not dead


def wait(node: Node, remote: Remote) -> str:
    """Wait until it is ready, or dead, or silent for too long"""
    started = time.monotonic()
    watch = Watch(node, remote, reread(remote, remote.place))
    try:
        if not _answers(node, remote):
            _poll(node, remote, watch)
    except RetryError:
        raise _ending(node, remote, watch, time.monotonic() - started) from None
    finally:
        watch.close()
    waited = f"after {time.monotonic() - started:.1f} s"
    if node.rank:
        return f"alive, its head is ready {waited}"
    remote.head_ready.set()
    return f"ready {waited}"


def _poll(node: Node, remote: Remote, watch: Watch) -> None:
    """Ask only after the ready line: before it, nobody listens. RetryError when it is over without an answer."""
    poll = Retrying(
        retry=retry_if_result(lambda answered: not answered),
        stop=stop_after_delay(node.profile.ready.deadline) | stop_when_event_set(watch.over),
        wait=wait_exponential_jitter(initial=0.05, max=2.0, jitter=0.05),
        sleep=sleep_using_event(watch.over),
    )
    poll(lambda: (watch.ready or node.rank > 0) and not watch.gone and _answers(node, remote))


def _answers(node: Node, remote: Remote) -> bool:
    """Whether it answers its readiness question; what a follower answers says nothing of the whole."""
    if node.rank:
        return remote.head_ready.is_set()
    try:
        reply = remote.http("GET", node.port, node.engine.READY_PATH, timeout=ATTEMPT, key=remote.place.key)
    except (ConnectionError, TimeoutError):
        return False
    return reply.status == 200


def _ending(node: Node, remote: Remote, watch: Watch, waited: float) -> DeployError:
    """Which of the other endings it was."""
    name, words = remote.host.name, str(watch.log)[-1500:]
    if watch.error:
        return watch.error
    if watch.gone or watch.fatal:
        return _death(node, remote, watch)
    if remote.abort.is_set():
        return Interrupted(f"{name}: stopped waiting after {waited:.0f} s; the server goes on loading")
    if watch.silence >= node.profile.ready.stall:
        return NotReady(
            f"{name}: no new log line for {watch.silence:.0f} s, and it is not ready",
            evidence=words,
            remedy="look at `deploy logs`; raise ready.stall if such a silence is normal for this model",
        )
    return NotReady(f"{name}: not ready after {waited:.0f} s", evidence=words, remedy="raise ready.deadline")


def _death(node: Node, remote: Remote, watch: Watch) -> LaunchFailed:
    how = "was killed" if watch.exit is None else f"ended with exit code {watch.exit}"
    if not watch.gone:
        how = "is beyond help, though its process lives"
    known = node.engine.explain(str(watch.log))
    if known:
        what = f"{remote.host.name}: the server {how}: {known.cause}"
        return LaunchFailed(what, evidence=known.evidence, remedy=known.remedy)
    return LaunchFailed(
        f"{remote.host.name}: the server {how} before it was ready",
        evidence=str(watch.log)[-1500:],
        remedy="its log is above; the whole of it: deploy logs",
    )
