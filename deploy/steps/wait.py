from __future__ import annotations

import json
import threading
import time
from typing import Literal

from tenacity import (
    RetryError,
    Retrying,
    retry_if_result,
    sleep_using_event,
    stop_after_delay,
    stop_when_event_set,
    wait_exponential_jitter,
)

from deploy import host
from deploy.engines._log import Explanation
from deploy.errors import DeployError, Interrupted, LaunchFailed, NotReady
from deploy.plan import Node
from deploy.remote import Remote
from deploy.state import Run, reread

ATTEMPT = 30.0  # seconds for one readiness answer: a first generation may be slow, and slow is not dead
FATAL = 5.0  # seconds of silence after which its last words are looked at
LOG_KEPT = 256 * 1024


def wait(node: Node, remote: Remote) -> str:
    """Wait until it is ready, or dead, or silent for too long"""
    started, run = time.monotonic(), reread(remote, remote.place)
    watch = _Watch(node, remote, run)
    try:
        poll = Retrying(
            retry=retry_if_result(lambda ready: not ready),
            stop=stop_after_delay(node.profile.ready.deadline) | stop_when_event_set(watch.over),
            wait=wait_exponential_jitter(initial=0.05, max=2.0, jitter=0.05),
            sleep=sleep_using_event(watch.over),
        )
        poll(watch.ready)
    except RetryError:
        raise watch.failure(time.monotonic() - started) from None
    finally:
        watch.close()
    if node.rank == 0:
        remote.head_ready.set()
    return f"{'ready' if node.rank == 0 else 'alive, its head is ready'} after {time.monotonic() - started:.1f} s"


class _Watch:
    """Reads the host's watch program in a thread: log lines, life, death. `over` is set when waiting makes no sense."""

    def __init__(self, node: Node, remote: Remote, run: Run) -> None:
        self.over = threading.Event()
        self._node, self._remote, self._run = node, remote, run
        self._said_ready = node.engine.READY is None
        self._looked_once = False
        self._log: list[str] = []
        self._gone = False
        self._exit: int | None = None
        self._error: DeployError | None = None
        self._fatal: Explanation | Literal[False] | None = None  # None: not looked yet since the log grew
        self._grown = time.monotonic()
        self._closed = False
        deadline = node.profile.ready.deadline + 60
        self._process = remote.spawn(
            *remote.interpreter,
            host.source("watch"),
            run.folder,
            run.pid or "0",
            run.ticks or "0",
            "0",
            deadline=deadline,
        )
        self._thread = threading.Thread(target=self._follow, name=f"watch {remote.host.name}", daemon=True)
        self._thread.start()

    def ready(self) -> bool:
        """Whether it answers its readiness question; asked once at the start, then after its ready line."""
        if self._remote.abort.is_set():
            self.over.set()
        if self._node.rank:  # what a follower answers says nothing of the whole
            return self._remote.head_ready.is_set() and not self._gone
        if self._looked_once and not self._said_ready:
            return False
        self._looked_once = True
        try:
            reply = self._remote.http(
                "GET", self._node.port, self._node.engine.READY_PATH, timeout=ATTEMPT, key=self._remote.place.key
            )
        except (ConnectionError, TimeoutError):
            return False
        return reply.status == 200 and not self._gone

    def failure(self, waited: float) -> DeployError:
        """Which of the endings it was."""
        name, log = self._remote.host.name, self._text()
        if self._error:
            return self._error
        if self._gone or self._fatal:
            return self._died(log)
        if self._remote.abort.is_set():
            return Interrupted(f"{name}: stopped waiting after {waited:.0f} s; the server goes on loading")
        silent = time.monotonic() - self._grown
        if silent >= self._node.profile.ready.stall:
            return NotReady(
                f"{name}: no new log line for {silent:.0f} s, and it is not ready",
                evidence=log[-1500:],
                remedy="look at `deploy logs`; raise ready.stall if such a silence is normal for this model",
            )
        return NotReady(f"{name}: not ready after {waited:.0f} s", evidence=log[-1500:], remedy="raise ready.deadline")

    def _died(self, log: str) -> LaunchFailed:
        how = "was killed" if self._exit is None else f"ended with exit code {self._exit}"
        if not self._gone:
            how = "is beyond help, though its process lives"
        known = self._node.engine.explain(log)
        if known:
            return LaunchFailed(
                f"{self._remote.host.name}: the server {how}: {known.cause}",
                evidence=known.evidence,
                remedy=known.remedy,
            )
        return LaunchFailed(
            f"{self._remote.host.name}: the server {how} before it was ready",
            evidence=log[-1500:],
            remedy="its log is above; the whole of it: deploy logs",
        )

    def _follow(self) -> None:
        rest = b""
        try:
            while not self._gone and not self._closed:
                rest += self._read()
                *lines, rest = rest.split(b"\n")
                for line in lines:
                    self._heard(json.loads(line))
        except DeployError as error:
            self._error = error
        finally:
            if not self._closed:
                self.over.set()

    def _silence(self, seconds: float) -> None:
        """Too long, or after last words that are known to be a death: SGLang whose port is taken never exits."""
        if seconds >= FATAL and self._fatal is None:
            known = self._node.engine.explain(self._text())
            self._fatal = known if known and known.signature in self._node.engine.LINGERS else False
        if self._fatal or seconds >= self._node.profile.ready.stall:
            self.over.set()

    def _text(self) -> str:
        return "".join(f"{line}\n" for line in self._log)

    def _read(self) -> bytes:
        """Some output; the program says every second that it lives, so silence means that the host is lost."""
        data = self._process.read(timeout=60.0)
        if not data and not self._closed:
            words = self._process.read_stderr().decode(errors="replace")
            raise DeployError(f"{self._remote.host.name}: the watch program ended", evidence=words)
        return data

    def _heard(self, told: dict[str, object]) -> None:
        if "gone" in told:
            code = told["gone"]
            self._exit, self._gone = (code if isinstance(code, int) else None), True
            return
        lines = told.get("log")
        if isinstance(lines, list):
            self._grown = time.monotonic()
            self._fatal = None
            for line in lines:
                self._line(str(line))
        elif not self._said_ready:
            self._silence(time.monotonic() - self._grown)
        if self._remote.abort.is_set():
            self.over.set()

    def _line(self, line: str) -> None:
        self._log.append(line)
        while sum(map(len, self._log)) > LOG_KEPT:
            del self._log[: len(self._log) // 2]
        found = self._node.engine.progress(line)
        if found:
            self._remote.say(
                found.text, phase=found.phase, component=found.component, done=found.done, total=found.total, log=line
            )
        else:
            self._remote.say("", log=line)
        if self._node.engine.READY and self._node.engine.READY.search(line):
            self._said_ready = True

    def close(self) -> None:
        """Stop reading; the host's program ends with its channel."""
        self._closed = True
        self._process.close()
