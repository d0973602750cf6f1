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

from deploy import death
from deploy.errors import DeployError, Interrupted, LaunchFailed, NotReady
from deploy.plan import Node
from deploy.remote import Remote
from deploy.state import reread
from deploy.watch import Watch

ATTEMPT = 30.0  # seconds for one readiness answer: a first generation may be slow, and slow is not dead


def wait(node: Node, remote: Remote) -> str:
    """Wait until it is ready, or dead, or silent for too long"""
    started, asked = time.monotonic(), _Readiness(node, remote)
    watch = Watch(node, remote, reread(remote, remote.place))
    try:
        if not asked.answers():
            _poll(asked, watch)
    except RetryError:
        raise _ending(asked, watch, time.monotonic() - started) from None
    finally:
        watch.close()
    waited = f"after {time.monotonic() - started:.1f} s"
    if node.rank:
        return f"alive, its head is ready {waited}"
    remote.head_ready.set()
    return f"ready {waited}"


class _Readiness:
    """The readiness question, and what was answered last."""

    def __init__(self, node: Node, remote: Remote) -> None:
        self.node, self.remote, self.last = node, remote, ""

    def answers(self) -> bool:
        """Whether it is ready; what a follower answers says nothing of the whole, so the head is looked at."""
        if self.node.rank:
            return self.remote.head_ready.is_set()
        path = self.node.engine.READY_PATH
        try:
            reply = self.remote.http("GET", self.node.port, path, timeout=ATTEMPT, key=self.remote.place.key)
        except (ConnectionError, TimeoutError) as error:
            self.last = f"GET {path}: {error or type(error).__name__}"
            return False
        self.last = f"GET {path}: {reply.status} {reply.body[:200].decode(errors='replace')}"
        return reply.status == 200


def _poll(asked: _Readiness, watch: Watch) -> None:
    """Ask only after the ready line: before it, nobody listens. RetryError when it is over without an answer."""
    poll = Retrying(
        retry=retry_if_result(lambda answered: not answered),
        stop=stop_after_delay(asked.node.profile.ready.deadline) | stop_when_event_set(watch.over),
        wait=wait_exponential_jitter(initial=0.05, max=2.0, jitter=0.05),
        sleep=sleep_using_event(watch.over),
    )
    poll(lambda: (watch.ready or asked.node.rank > 0) and not watch.gone and asked.answers())


def _ending(asked: _Readiness, watch: Watch, waited: float) -> DeployError:
    """Which of the other endings it was."""
    node, remote = asked.node, asked.remote
    name, words = remote.host.name, str(watch.log)[-1500:]
    if watch.error:
        return watch.error
    if watch.gone or watch.fatal:
        return _death(node, remote, watch)
    if remote.abort.is_set():
        return Interrupted(f"{name}: stopped waiting after {waited:.0f} s; the server goes on loading")
    if watch.ready:
        return NotReady(
            f"{name}: its log says that it is ready, but it does not answer so after {waited:.0f} s",
            evidence=f"{asked.last}\n{words}",
            remedy="raise ready.deadline, or look at what it says: deploy logs",
        )
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
    return death.explained(node, remote, f"{how} before it was ready", str(watch.log))
