"""A run's log and life, as a program on the host tells them, heard in a thread while somebody waits."""

from __future__ import annotations

import json
import math
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from deploy import host
from deploy.deployment.state import Run
from deploy.engines._log import Seen
from deploy.errors import DeployError, Unreachable
from deploy.plan import Node
from deploy.remote import Remote
from deploy.server.loading import Loading

GRACE = 2.0  # seconds for a server to end by itself after a fatal line, and to say the rest
SHORT = 5.0  # seconds of silence that are not worth a word
SILENT = 60.0  # seconds; the program on the host says every second that it lives
KEPT = 256 << 10  # characters of the log, for the explanation of a death
MARKS = 200  # lines from before these, of those that tell how far the server is
EARLIER = 1 << 20  # bytes of a log that is there already: a server that was there may have written for weeks


class Tail:
    """The last lines of a log, so many characters in all; and from before these, the last that have one of some words:
    what a silence means depends on how far the server is.
    """

    def __init__(self, kept: int, words: Sequence[str]) -> None:
        self._lines: deque[str] = deque()
        self._earlier: deque[str] = deque(maxlen=MARKS)
        self._size, self._kept, self._words = 0, kept, words

    def add(self, line: str) -> None:
        self._lines.append(line)
        self._size += len(line) + 1
        while self._size > self._kept and len(self._lines) > 1:
            gone = self._lines.popleft()
            self._size -= len(gone) + 1
            if any(word in gone for word in self._words):
                self._earlier.append(gone)

    def __str__(self) -> str:
        return "".join(f"{line}\n" for line in (*self._earlier, *self._lines))


class Watch:
    """Hears a run. `heard` is set when what its log had already is heard, `turn` when its readiness can be asked for or
    waiting for it makes no sense any more.

    over       dead, silent for too long, beyond help, the host lost, or the run is being stopped
    ready      its log said so, or may have said so before what is read of it, or its engine has no such line
    gone, exit the launcher has ended, and the code that it wrote (None: it was killed)
    lost       an engine's process that is gone: its title, pid, and how it ended
    fatal      it said what it never recovers from, and lives on: SGLang whose port is taken never ends (0.5.23). Not
               once it is ready: then such words may be those of somebody's request
    stalled    no host of its replica showed a sign of life for `ready.stall`
    silence    seconds since its own last sign of life, as the host told it last; `sign` is which one that was
    compilers  the command lines of its compilers that are at work
    stopped    those of its processes that a signal or a debugger has stopped
    error      the host could not be heard
    """

    def __init__(self, node: Node, remote: Remote, run: Run) -> None:
        self.over, self.turn, self.heard = threading.Event(), threading.Event(), threading.Event()
        self.ready = False
        self.gone, self.lost = False, ""
        self.exit: int | None = None
        self.fatal, self.stalled = False, False
        self.error: Exception | None = None
        self.silence, self.sign = 0.0, ""
        self.compilers: tuple[str, ...] = ()
        self.stopped: tuple[str, ...] = ()
        self.oom: tuple[str, ...] = ()
        self.unread = ""
        self.log = Tail(KEPT, node.engine.WORDS)
        if node.engine.READY is None:
            self._get_ready()
        self.loading = Loading(node, remote)
        self._node, self._remote = node, remote
        self._doomed, self._closed, self._ended, self._compiles = math.inf, False, False, False
        words = (host.source("watch"), run.server, run.pid or "0", run.ticks or "0", str(-EARLIER))
        self._process = remote.spawn(*remote.interpreter, *words, deadline=node.profile.ready.deadline + SILENT)
        threading.Thread(target=self._follow, name=f"watch {remote.host.name}", daemon=True).start()

    @property
    def seen(self) -> Seen:
        """What was seen of it beside its log."""
        silent = self.silence if self.stalled and not self.gone else None
        lost = (self.lost,) if self.lost and not self.gone else ()
        return Seen(self.exit, silent, self.compilers, lost=lost, oom=self.oom, unread=self.unread)

    @property
    def ending(self) -> str:
        """In words, how the launcher that is gone has ended."""
        return "was killed" if self.exit is None else f"ended with exit code {self.exit}"

    def close(self) -> None:
        """Stop hearing; the program on the host ends with its channel."""
        self._closed = True
        self._process.close()

    def _follow(self) -> None:
        rest = b""
        try:
            while not self._ended and not self._closed:
                rest += self._read()
                *lines, rest = rest.split(b"\n")
                for line in lines:
                    self._hear(_document(line, self._remote.host.name))
        except Exception as error:  # noqa: BLE001 - raised again where somebody waits
            self.error = error
        finally:
            if not self._closed:
                self._stop()

    def _get_ready(self) -> None:
        self.ready = True
        self.turn.set()

    def _stop(self) -> None:
        for event in (self.over, self.turn, self.heard):
            event.set()

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
            self.gone, self.exit = told["gone"], told["exit"]
            self.oom, self.unread = tuple(told["oom"]), told["unread"]
            self._ended = True
            self._stop()
            if self.gone:
                self._remote.say(f"it {self.ending}", gone=True)
        elif "log" in told:
            self._lines(told["log"])
        elif "from" in told:
            if told["from"] and self._remote.place.warm:
                self._get_ready()
        elif "lost" in told:
            self._lose(**told["lost"])
        else:
            self.heard.set()
            self.silence, self.sign = told["silent"], told["sign"]
            self.stopped = tuple(told["stopped"])
            self._look(tuple(told["compilers"]))
            self._compare()
        late = self.stalled or time.monotonic() - self._doomed > GRACE
        self.fatal = self.fatal or (self._doomed < math.inf and late and not self._ended)
        if self.fatal or self.stalled or self._remote.abort.is_set():
            self._stop()

    def _look(self, compilers: tuple[str, ...]) -> None:
        """Between two lines of the log. Compilers that work for longer than a second are told: slow is not hung."""
        if compilers and self.compilers and not self._compiles:
            self._compiles = True
            self._remote.say(self._doing)
        self.compilers = compilers
        if not self.ready:
            self.loading.still(self._doing)

    @property
    def _doing(self) -> str:
        """What it is seen to do while its log says nothing."""
        if self.compilers:
            names = {command.split(" ")[0].rpartition("/")[2]: None for command in self.compilers}
            return f"compiling kernels: {', '.join(names)} at work"
        if self.silence >= SHORT:
            return f"no sign of life for {self.silence:.0f} s (hung after {self._node.profile.ready.stall:g})"
        return "" if self.sign == "the log" else self.sign

    def _compare(self) -> None:
        """A rank that waits for the others is as silent as one that hangs, so a replica's silence is that of all."""
        now, signs = time.monotonic(), self._remote.signs
        signs[self._remote.host.name] = now - self.silence
        self.stalled = self.stalled or now - max(signs.values()) >= self._node.profile.ready.stall

    def _lines(self, lines: list[str]) -> None:
        self._compiles = False
        fatal, ready = self._node.engine.FATAL, self._node.engine.READY
        for line in lines:
            self.log.add(line)
            if ready and ready.search(line):
                self._get_ready()
            if fatal and not self.ready and fatal.search(line):
                self._doomed = min(self._doomed, time.monotonic())
        self.loading.hear(lines)

    def _lose(self, title: str, pid: int, status: int | None) -> None:
        """Told at once; the end of waiting comes when the launcher has had its time to say more."""
        self.lost = f"{title} (pid {pid}{_how(status)})"
        self._remote.say(f"{self.lost} is gone", gone=True)


def _document(line: bytes, name: str) -> dict[str, Any]:
    """What the program on the host of that name tells. DeployError where something else speaks in between."""
    with suppress(ValueError):
        if isinstance(told := json.loads(line), dict):
            return told
    raise DeployError(
        f"{name}: the watch program says what it should not",
        evidence=line[-500:].decode(errors="replace"),
        remedy="does the host's python3 print something of its own? a sitecustomize.py may do so",
    )


def _how(status: int | None) -> str:
    """A status of wait(2) in words; nothing where nobody knows it."""
    if status is None:
        return ""
    number = status & 0x7F
    return f", killed by signal {number}" if number else f", exit code {status >> 8}"
