"""A program that runs on a host, the same for every transport: three threads that never let its streams fill up."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Protocol

from deploy.errors import RemoteFailed, Unreachable
from deploy.transport._pipe import Pipe

BUFFER = 4 << 20  # bytes of stdout that wait for a reader before the program has to wait
STDERR = 64 << 10
NOISE = 64 << 10
LINGER = (
    2.0  # seconds that streams may stay open after the program's end: a child it left behind may hold them for ever
)


class Streams(Protocol):
    """What a transport knows about a program: its three streams, its status, and how to end it."""

    def receive(self) -> bytes: ...
    def receive_stderr(self) -> bytes: ...
    def send(self, data: bytes) -> None: ...
    def shut(self) -> None: ...
    def wait(self) -> int | Unreachable: ...  # why there is no status: the connection was lost before it came
    def cut(self) -> None: ...
    def terminate(self, group: int) -> None: ...


class Running:
    """A `Process` over the streams of any transport. `keep`: bytes of stdout to keep when nobody reads meanwhile."""

    def __init__(self, host: str, streams: Streams, mark: re.Pattern[bytes], *, keep: int | None = None) -> None:
        self.ended = threading.Event()
        self.begun = threading.Event()
        self._host = host
        self._streams = streams
        self._mark = mark
        self.noise = {"stdout": b"", "stderr": b""}  # what the login shell wrote of its own, before the program began
        self._group = 0
        self._status: int | None = None
        self.lost: Unreachable | None = None
        self._closed = False
        self._out = Pipe(keep or BUFFER, forgets=keep is not None)
        self._err = Pipe(keep or STDERR, forgets=True)

    def start(self, finished: Callable[[], None]) -> None:
        """Begin to drain; `finished` is called once, when the program has ended."""
        pumps = [
            threading.Thread(target=self._pump, args=("stdout", self._streams.receive, self._out), daemon=True),
            threading.Thread(target=self._pump, args=("stderr", self._streams.receive_stderr, self._err), daemon=True),
        ]
        for pump in pumps:
            pump.start()
        threading.Thread(target=self._watch, args=(pumps, finished), daemon=True).start()

    # ---- what a caller does --------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send bytes to its stdin. builtin BrokenPipeError when it, or the connection, is gone."""
        self._streams.send(data)

    def close_stdin(self) -> None:
        """Tell it that no more input comes."""
        with suppress(OSError):
            self._streams.shut()

    def read(self, size: int = 65536, timeout: float | None = None) -> bytes:
        """Some bytes of its stdout, b"" at the end. builtin TimeoutError; Unreachable when the connection was lost."""
        return self._out.take(size, timeout)

    def read_stderr(self) -> bytes:
        """What it wrote to stderr since the last time; never waits."""
        return self._err.rest()

    def poll(self) -> int | None:
        """Its exit status; None while it runs, or when the connection was lost."""
        return self._status

    def close(self) -> None:
        """End it, if it has not ended."""
        if self._closed:
            return
        self._closed = True
        self.close_stdin()
        running = not self.ended.is_set() and self.begun.wait(LINGER)
        self._out.end()
        self._err.end()
        self._streams.cut()
        if running:
            self._streams.terminate(self._group)

    # ---- its threads ---------------------------------------------------------------------------------------------

    def _pump(self, name: str, receive: Callable[[], bytes], pipe: Pipe) -> None:
        for data in self._marked(name, receive):
            pipe.feed(data)

    def _marked(self, name: str, receive: Callable[[], bytes]) -> Iterator[bytes]:
        """What a stream carries after the mark; what came before it is the login shell's, and evidence at most."""
        before = b""
        while not (found := self._mark.search(before)):
            data = receive()
            if not data:
                self.noise[name] = before
                return
            before = (before + data)[-NOISE:]
        self.noise[name] = before[: found.start()]
        self._group = int(found[1])
        self.begun.set()
        yield before[found.end() :]
        while data := receive():
            yield data

    def _watch(self, pumps: list[threading.Thread], finished: Callable[[], None]) -> None:
        end = self._streams.wait()
        self._linger(pumps)
        self._streams.cut()
        self._status, self.lost = (None, end) if isinstance(end, Unreachable) else (end, None)
        self._out.end(self._broken())
        self._err.end()
        self.ended.set()
        finished()

    def _broken(self) -> Exception | None:
        """Why it ended other than by its own will."""
        if self._closed:
            return None
        if self._status is None or self.begun.is_set():
            return self.lost
        return RemoteFailed(
            f"{self._host}: the login shell ended with status {self._status} before the program started",
            status=self._status,
            evidence=b"".join(self.noise.values()).decode(errors="replace").strip(),
            remedy="programs are started through `sh` and `timeout`, and the shell's start-up files must let them",
        )

    def _linger(self, pumps: list[threading.Thread]) -> None:
        """Let the streams run dry; they are given up when nothing comes although the reader is ready."""
        while any(pump.is_alive() for pump in pumps):
            seen = self._out.total + self._err.total
            for pump in pumps:
                pump.join(LINGER / 2)
            if not self._out.full and seen == self._out.total + self._err.total:
                return
