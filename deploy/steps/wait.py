from __future__ import annotations

import time
from dataclasses import replace
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from tenacity import (
    RetryError,
    Retrying,
    retry_if_result,
    sleep_using_event,
    stop_after_delay,
    stop_when_event_set,
    wait_exponential_jitter,
    wait_fixed,
)

from deploy.deployment.state import reread
from deploy.errors import Interrupted, LaunchFailed, NotReady
from deploy.plan import Node
from deploy.remote import Remote
from deploy.server import death
from deploy.server.watch import GRACE, Watch
from deploy.transport.http import HttpReply

ATTEMPT = 30.0  # seconds for the answer whether it is ready
GENERATION = 120.0  # seconds for a first generation, which may be slow; those that were given up fill its queue
SHORTEST = 5.0  # seconds that an answer is given, however near the deadline is
GLANCE = 0.05  # seconds between two looks at whether it makes sense to wait for an answer
TRIES = 3  # first generations that break off or get no answer, while it says that it is ready
TOKENS = 8  # of the first generation: enough for a draft to be used


def wait(node: Node, remote: Remote) -> str:
    """Wait until it is ready, or dead, or silent for too long"""
    started = time.monotonic()
    watch = Watch(node, remote, reread(remote, remote.place))
    asked = _Readiness(node, remote, watch, started + node.profile.ready.deadline)
    try:
        if remote.place.warm:
            watch.heard.wait(SHORTEST)  # how long its start took counts, though nobody waited for it
        if not (remote.place.warm and asked.answers()):
            _poll(asked, watch)
    except RetryError:
        raise _ending(asked, watch, time.monotonic() - started) from None
    finally:
        watch.close()
    waited = time.monotonic() - started
    if not node.rank:
        remote.head_ready.set()
        remote.say("it generates", ready=True)
    return f"{'alive, its head is' if node.rank else ''} ready after {waited:.1f} s{watch.loading.finish()}".lstrip()


class _Readiness:
    """What readiness is asked by, one request at a time, and what came of the last one: `last`, in words."""

    def __init__(self, node: Node, remote: Remote, watch: Watch, end: float) -> None:
        self.node, self.remote, self.watch, self.end = node, remote, watch, end
        self.last, self.silent, self.broken = "", True, 0

    def answers(self) -> bool:
        """Whether it is ready, and has generated for us.

        What a follower answers says nothing of the whole, so the head is looked at.
        """
        if self.node.rank:
            return self.remote.head_ready.is_set()
        return self._says_so() and self._generates()

    def _says_so(self) -> bool:
        reply = self._ask("GET", self.node.engine.READY_PATH)
        return reply is not None and reply.status == 200

    def _generates(self) -> bool:
        """Servers say 200 while what generates behind them is dead (sglang#8115, #4191), so one answer must come.

        What it says is judged by `smoke`, a refusal (4xx) too. 503 is a server under load, or not yet ready; after
        any other 5xx it has generated nothing.
        """
        question = self.node.engine.chat(self.node.served_name, "Hello", TOKENS)
        reply = self._ask("POST", question.path, dict(question.body), limit=GENERATION)
        answered = reply is not None and (reply.status < 500 or reply.status == 503)
        self.broken = 0 if answered or self.watch.over.is_set() else self.broken + 1
        if self.broken == TRIES:
            if self.node.profile.nodes > 1:
                self.remote.pause(GRACE)  # another rank of it may have died, and then that is what failed
            raise NotReady(
                f"{self.remote.host.name}: it says that it is ready, and generates nothing",
                evidence=self.last,
                remedy="what generates behind its port is dead or hangs: deploy logs, then deploy restart",
            )
        return reply is not None and reply.status < 500

    def _ask(self, method: str, path: str, body: Any = None, *, limit: float = ATTEMPT) -> HttpReply | None:
        """One request; None where no answer came, or none is worth waiting for any more."""
        answer: SimpleQueue[HttpReply | Exception] = SimpleQueue()
        limit = max(SHORTEST, min(limit, self.end - time.monotonic()))
        Thread(target=self._exchange, args=(answer, method, path, body, limit), daemon=True).start()
        while not self.watch.over.is_set():
            try:
                return self._told(f"{method} {path}", answer.get(timeout=GLANCE))
            except Empty:
                continue
        return None

    def _exchange(
        self, answer: SimpleQueue[HttpReply | Exception], method: str, path: str, body: Any, limit: float
    ) -> None:
        try:
            reply = self.remote.http(method, self.node.port, path, body, timeout=limit, key=self.remote.place.key)
        except Exception as error:  # noqa: BLE001 - raised again where somebody waits for it
            answer.put(error)
        else:
            answer.put(reply)

    def _told(self, request: str, answer: HttpReply | Exception) -> HttpReply | None:
        if isinstance(answer, ConnectionError | TimeoutError):
            self.last, self.silent = f"{request}: {answer or type(answer).__name__}", True
            return None
        if isinstance(answer, Exception):
            raise answer
        self.last, self.silent = f"{request}: {answer.status} {answer.body[:200].decode(errors='replace')}", False
        if answer.status in (401, 403):
            raise NotReady(
                f"{self.remote.host.name}: it serves, but refuses {'our key' if self.remote.place.key else 'us'}",
                evidence=self.last,
                remedy="is its API key in your environment? secrets: {NAME: api-key} in the profile names the variable",
            )
        return answer


def _poll(asked: _Readiness, watch: Watch) -> None:
    """Ask only after the ready line: before it, nobody listens. RetryError when it is over without an answer."""
    follows = asked.node.rank > 0
    if not follows:
        watch.turn.wait(max(0.0, asked.end - time.monotonic()))
    poll = Retrying(
        retry=retry_if_result(lambda answered: not answered),
        stop=stop_after_delay(max(0.0, asked.end - time.monotonic())) | stop_when_event_set(watch.over),
        wait=wait_fixed(GLANCE) if follows else wait_exponential_jitter(initial=0.05, max=2.0, jitter=0.05),
        sleep=sleep_using_event(watch.over),
    )
    poll(lambda: (watch.ready or follows) and not watch.over.is_set() and asked.answers())


def _ending(asked: _Readiness, watch: Watch, waited: float) -> Exception:
    """Which of the other endings it was."""
    node, remote = asked.node, asked.remote
    name = remote.host.name
    if watch.error:
        return watch.error
    if watch.gone or watch.lost or watch.fatal:
        return _death(node, remote, watch)
    if remote.abort.is_set():
        return Interrupted(f"{name}: stopped waiting after {waited:.0f} s; the server goes on loading")
    if watch.stalled:
        return _silence(node, remote, watch, asked.last)
    return _late(f"{name}: not ready after {waited:.0f} s{_where(watch)}", asked, watch)


def _late(what: str, asked: _Readiness, watch: Watch) -> NotReady:
    """The deadline is over, and it may yet come."""
    words = death.end(str(watch.log))
    if watch.ready:
        what = f"{what}, though its log says so: it {'does not answer' if asked.silent else 'answers otherwise'}"
        remedy = "raise ready.deadline, or look at what it says: deploy logs"
        return NotReady(what, evidence=f"{asked.last}\n{words}", remedy=remedy)
    if watch.compilers:
        remedy = "raise ready.deadline: what its compilers make is kept for the next start"
        return NotReady(f"{what}: it compiles kernels", evidence="\n".join(watch.compilers), remedy=remedy)
    return NotReady(what, evidence=words, remedy="raise ready.deadline")


def _where(watch: Watch) -> str:
    """In which stage of its start, and since when."""
    return f", in {watch.loading.where}" if watch.loading.where and not watch.ready else ""


def _silence(node: Node, remote: Remote, watch: Watch, answered: str) -> NotReady:
    what = f"{remote.host.name}: no sign of life for {watch.silence:.0f} s, and it is not ready{_where(watch)}"
    words = "\n".join(part for part in (answered, death.end(str(watch.log))) if part)
    if watch.stopped:
        evidence = "\n".join((*watch.stopped, words))
        return NotReady(f"{what}: processes of it are stopped", evidence=evidence, remedy="kill -CONT them")
    if known := node.engine.explain(str(watch.log), replace(watch.seen, known=remote.known)):
        return NotReady(f"{what}: {death.cause(known)}", evidence=death.evidence(known) or words, remedy=known.remedy)
    remedy = "look at `deploy logs`; raise ready.stall if such a silence is normal for this model"
    return NotReady(what, evidence=words, remedy=remedy)


def _death(node: Node, remote: Remote, watch: Watch) -> LaunchFailed:
    error = death.explained(node, remote, f"{_how(watch)} before it was ready", str(watch.log), watch.seen)
    if watch.unread and watch.unread not in error.remedy:
        unknown = "whether the kernel killed it for want of memory is not known: its log cannot be read"
        error.evidence = f"{error.evidence}\n{unknown} ({watch.unread})".lstrip()
    return error


def _how(watch: Watch) -> str:
    if watch.gone:
        return watch.ending
    return f"has lost {watch.lost}" if watch.lost else "is beyond help, though its process lives,"
