"""A run's log and life, as a program on the host tells them, heard in a thread while somebody waits."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from typing import Any, Literal

from deploy import host
from deploy.engines._log import Explanation
from deploy.errors import DeployError, Unreachable
from deploy.loading import Loading
from deploy.plan import Node
from deploy.remote import Remote
from deploy.state import Run

FATAL = 5.0  # seconds of silence after which the last words of a living server are looked at
SILENT = 60.0  # seconds; the program on the host says every second that it lives
KEPT = 256 << 10  # characters of the log, for the explanation of a death
EARLIER = 1 << 20  # bytes of a log that is there already: a server that is adopted may have written for weeks


class Tail:
    """The last lines of a log, so many characters in all."""

    def __init__(self, kept: int) -> None:
        self._lines: deque[str] = deque()
        self._size, self._kept = 0, kept

    def add(self, line: str) -> None:
        self._lines.append(line)
        self._size += len(line) + 1
        while self._size > self._kept and len(self._lines) > 1:
            self._size -= len(self._lines.popleft()) + 1

    def __str__(self) -> str:
        return "".join(f"{line}\n" for line in self._lines)


class Watch:
    """Hears a run; `over` is set when waiting for it makes no sense any more.

    over       dead, silent for too long, beyond help, the host lost, or the run is being stopped
    ready      its log said so, or its engine has no such line
    gone, exit the launcher has ended, and the code that it wrote (None: it was killed)
    fatal      a failure after which it lives on without ever serving
    error      the host could not be heard
    """

    def __init__(self, node: Node, remote: Remote, run: Run) -> None:
        self.over = threading.Event()
        self.ready = node.engine.READY is None
        self.gone, self.exit = False, None
        self.fatal: Explanation | Literal[False] | None = None  # None: not looked yet since the log grew
        self.error: DeployError | None = None
        self.log = Tail(KEPT)
        self._loading = Loading(node, remote)
        self._node, self._remote = node, remote
        self._grown, self._closed = time.monotonic(), False
        words = (host.source("watch"), run.folder, run.pid or "0", run.ticks or "0", str(-EARLIER))
        self._process = remote.spawn(*remote.interpreter, *words, deadline=node.profile.ready.deadline + SILENT)
        threading.Thread(target=self._follow, name=f"watch {remote.host.name}", daemon=True).start()

    @property
    def silence(self) -> float:
        """Seconds since the log grew."""
        return time.monotonic() - self._grown

    def close(self) -> None:
        """Stop hearing; the program on the host ends with its channel."""
        self._closed = True
        self._process.close()

    def _follow(self) -> None:
        rest = b""
        try:
            while not self.gone and not self._closed:
                rest += self._read()
                *lines, rest = rest.split(b"\n")
                for line in lines:
                    self._hear(json.loads(line))
        except DeployError as error:
            self.error = error
        finally:
            if not self._closed:
                self.over.set()

    def _read(self) -> bytes:
        try:
            data = self._process.read(timeout=SILENT)
        except TimeoutError:
            raise Unreachable(f"{self._remote.host.name}: not a sign of life for {SILENT:.0f} s") from None
        if not data and not self._closed:
            words = self._process.read_stderr().decode(errors="replace")
            raise DeployError(f"{self._remote.host.name}: the watch program ended", evidence=words)
        return data

    def _hear(self, told: dict[str, Any]) -> None:
        if "gone" in told:
            self.gone, self.exit = True, told["gone"]
        elif "log" in told:
            self._lines(told["log"])
        elif not self.ready:
            self._look_at_silence()
        if self._remote.abort.is_set():
            self.over.set()

    def _lines(self, lines: list[str]) -> None:
        self._grown, self.fatal = time.monotonic(), None
        ready = self._node.engine.READY
        for line in lines:
            self.log.add(line)
            self.ready = self.ready or bool(ready and ready.search(line))
        self._loading.hear(lines)

    def _look_at_silence(self) -> None:
        """Too long, or after last words that are known to be a death: SGLang whose port is taken never exits."""
        if self.silence >= FATAL and self.fatal is None:
            known = self._node.engine.explain(str(self.log))
            self.fatal = known if known and known.signature in self._node.engine.LINGERS else False
        if self.fatal or self.silence >= self._node.profile.ready.stall:
            self.over.set()
