"""The machine we run on, without SSH: the same programs in the same wrapping, by the standard library."""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, cast

from deploy.errors import RemoteFailed
from deploy.transport import _apart, _copy, _timeout
from deploy.transport._calls import Calls
from deploy.transport._process import Running
from deploy.transport._wrapper import wrap

FULL = 0.1  # seconds between looks at a full pipe


class LocalStreams:
    """A child process as streams."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child
        self._stdin = cast("IO[bytes]", child.stdin)
        self._stdout = cast("IO[bytes]", child.stdout)
        self._stderr = cast("IO[bytes]", child.stderr)
        # The program's end closes stdin while a caller may write to it, and the number may then be another file's:
        # both ask for this lock, which a write that has to wait for room must not hold.
        self._sending = threading.Lock()
        os.set_blocking(self._stdin.fileno(), False)

    def receive(self) -> bytes:
        return _read(self._stdout)

    def receive_stderr(self) -> bytes:
        return _read(self._stderr)

    def send(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            with self._sending:
                if self._stdin.closed:
                    raise BrokenPipeError
                pipe, sent = self._stdin.fileno(), self._stdin.write(rest) or 0
            rest = rest[sent:]
            if not sent:
                _until_writable(pipe)

    def shut(self) -> None:
        with self._sending:
            self._stdin.close()

    def wait(self) -> int:
        status = self._child.wait()
        return 128 - status if status < 0 else status

    def cut(self) -> None:
        self.shut()  # the other pipes end with the last process that holds them

    def terminate(self, group: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(group, signal.SIGTERM)


def _until_writable(pipe: int) -> None:
    """Until a pipe has room or no reader, or a moment has passed: it may have been closed meanwhile."""
    room = select.poll()
    room.register(pipe, select.POLLOUT)
    room.poll(FULL * 1000)


def _home() -> Path:
    """Where a login would begin, where there is such a place."""
    home = Path.home()
    return home if home.is_dir() else Path("/")


def _words() -> tuple[str, ...]:
    """How `timeout` is started here: a controller need not have the GNU tools."""
    if shutil.which("timeout"):
        return ("timeout", "-k")
    return (sys.executable, "-I", "-S", str(_timeout.__file__))


class LocalTransport(Calls):
    """A `Transport` to the machine we run on."""

    def __init__(self, name: str = "localhost") -> None:
        self.name = name

    def _start(self, argv: Sequence[str], deadline: float, keep: int | None) -> Running:
        words, mark = wrap(argv, deadline, _words())
        pipe = subprocess.PIPE
        child = _apart.start(words, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, cwd=_home())
        running = Running(self.name, LocalStreams(child), mark, keep=keep)
        running.start(lambda: None)
        return running

    def dial(self, port: int, *, host: str = "127.0.0.1", timeout: float = 5.0) -> socket.socket:
        """Connect to a port. builtin ConnectionRefusedError when nobody listens."""
        stream = socket.create_connection((host, port), timeout)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return stream

    def push(
        self,
        source: Path,
        target: str,
        *,
        progress: Callable[[int, int], None],
        timeout: float,
        guard: Sequence[str] = (),  # noqa: ARG002 - no other program receives here
    ) -> None:
        """Copy the folder's files into the folder `target`; what is there already is left; TimedOut after `timeout`."""
        _copy.folder(source, Path.home() / target, progress, timeout)

    def fetch(self, source: str, target: Path, *, timeout: float) -> None:
        """Copy a folder's files, or one file, into the folder `target`."""
        origin = Path.home() / source
        if not origin.exists():
            raise RemoteFailed(f"{self.name}: there is no {source}", status=1)
        _copy.folder(origin, target, lambda _done, _total: None, timeout)

    def fresh(self) -> LocalTransport:
        """Another one; there is no connection to share."""
        return LocalTransport(self.name)

    def close(self) -> None:
        """Nothing is held."""


def _read(pipe: IO[bytes]) -> bytes:
    data = pipe.read(65536)
    if not data:
        pipe.close()  # by the thread that reads it: no other may, while a read waits
    return data
