"""A live host in a run: what a step may do with it."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deploy import host, transport
from deploy.engines._log import Signature
from deploy.errors import Interrupted, Locked, NoPython, RemoteFailed
from deploy.events import Event, Kind
from deploy.inventory import Host
from deploy.locking.lease import Lease
from deploy.transport import Configuration, Process, Transport
from deploy.transport.http import HttpReply, HttpStream, request, stream

if TYPE_CHECKING:
    from deploy.checks import Case
    from deploy.deployment.state import Place

FENCED = 97
SHORT, LONG = 4 << 20, 64 << 20  # bytes of output that are kept: of any program, and of one that answers in JSON
FENCE = f'[ "$(head -n 1 -- "$1" 2>/dev/null)" = "$2" ] || exit {FENCED}; shift 2\n'

Emit = Callable[[Event], None]


class Remote:
    """One host, reached; events said here carry its name and the step that runs.

    `abort`, `head_ready`, `signs` and `cases` are shared by the hosts of a replica: one stops all of them, one tells
    ranks above 0 that the head answers, one has when each host showed its last sign of life (monotonic), and one what
    the checks saw of each.
    """

    def __init__(self, where: Host, reached: Transport, emit: Emit, abort: threading.Event) -> None:
        self.host = where
        self.interpreter = host.python(where.transport)
        self.transport = reached
        self.renew(abort)
        self.lease: Lease | None = None
        self.known: tuple[Signature, ...] = ()  # the user's failures.yaml, for explaining a death here
        self._place: Place | None = None
        self._emit = emit

    def renew(self, abort: threading.Event) -> None:
        """Be as just reached: for another walk."""
        self.abort = abort
        self.step = ""
        self.head_ready = threading.Event()
        self.signs: dict[str, float] = {}
        self.cases: dict[str, Case] = {}
        self.mates: tuple[str, ...] = (self.host.name,)  # all hosts of its replica, the head first

    @property
    def place(self) -> Place:
        """Where the run that is walked here lives."""
        if self._place is None:
            raise RuntimeError("no run is walked on this host")
        return self._place

    @place.setter
    def place(self, place: Place) -> None:
        self._place = place

    # ---- running things ------------------------------------------------------------------------------------------

    def run(
        self, *argv: str, ok: tuple[int, ...] = (0,), timeout: float = 30.0, stdin: bytes = b"", limit: int = SHORT
    ) -> str:
        """Run a program; the last `limit` bytes of its stdout. RemoteFailed with its last words when its status is not
        in `ok`.
        """
        result = self.transport.run(argv, stdin=stdin, timeout=timeout, limit=limit)
        if result.status == FENCED and self.lease:
            raise Locked(
                f"{self.host.name}: our lease on the host lapsed, and somebody else may act on it now",
                remedy="run the command again",
            )
        if result.status not in ok:
            words = (result.stderr or result.stdout).decode(errors="replace").strip()
            raise self._full(words, result.status) or RemoteFailed(
                f"{self.host.name}: {argv[0]} ended with status {result.status}",
                status=result.status,
                evidence=words[-1500:],
            )
        return result.stdout.decode(errors="replace")

    def sh(self, script: str, *args: str, ok: tuple[int, ...] = (0,), timeout: float = 30.0) -> str:
        """Run a constant script of plain sh; what varies comes as "$1", "$2", ..."""
        return self.run("sh", "-c", script, "sh", *args, ok=ok, timeout=timeout)

    def python(self, source: str, *args: str, timeout: float = 30.0, stdin: bytes = b"") -> Any:
        """Run a program of `deploy/host`; the JSON that it prints. RemoteFailed where it prints none; NoPython where no
        python3 is there, or one that is too old.
        """
        argv = (*self.interpreter, source, *args)
        with self._explaining_python():
            return self._document(self.run(*argv, timeout=timeout, stdin=stdin, limit=LONG))

    def change(self, script: str, *args: str, timeout: float = 30.0, stdin: bytes = b"") -> str:
        """Like `sh`, for scripts that change something: they act only while the lock is still ours."""
        return self.run(*self._fenced(script), *args, timeout=timeout, stdin=stdin)

    def change_python(self, source: str, *args: str, timeout: float = 30.0, stdin: bytes = b"") -> Any:
        """Like `python`, for programs that change something."""
        argv = (*self._fenced('exec "$@"'), *self.interpreter, source, *args)
        with self._explaining_python():
            return self._document(self.run(*argv, timeout=timeout, stdin=stdin, limit=LONG))

    def write(self, folder: str, files: Mapping[str, str]) -> None:
        """Write small files into a folder, for their owner alone, each whole or not at all."""
        self.change_python(host.source("write"), folder, stdin=json.dumps(files).encode())

    def put(self, path: str, content: bytes, *, mode: int = 0o600) -> None:
        """Write one file of any content, whole or not at all."""
        self.change(":")
        try:
            self.transport.put(path, content, mode=mode)
        except RemoteFailed as error:
            raise self._full(error.evidence, error.status) or error from error

    def push(self, source: Path, target: str, *, progress: Callable[[int, int], None], timeout: float) -> None:
        """Copy a folder's files into the folder `target`; what receives them there looks at the lock first."""
        self.change(":")
        guard = self._fenced('exec "$@"')
        self.transport.push(source, target, progress=progress, timeout=timeout, guard=guard)

    def spawn(self, *argv: str, deadline: float) -> Process:
        """Start a program and keep its streams; the caller closes it."""
        return self.transport.spawn(argv, deadline=deadline)

    def aside(self) -> AbstractContextManager[Remote]:
        """A connection of its own, closed at the end of the `with`."""
        return _Aside(self)

    def http(
        self, method: str, port: int, path: str, body: Any = None, *, timeout: float = 30.0, key: str = ""
    ) -> HttpReply:
        """Ask a server on the host, through the connection. builtin ConnectionError when there is none."""
        data = None if body is None else json.dumps(body).encode()
        return request(self.transport, method, port, path, body=data, headers=_headers(body, key), timeout=timeout)

    def http_stream(
        self, method: str, port: int, path: str, body: Any, *, left: Callable[[], float], key: str = ""
    ) -> AbstractContextManager[HttpStream]:
        """The same, with an answer that is read as it comes; TimeoutError once no seconds are `left`."""
        headers, data = _headers(body, key), json.dumps(body).encode()
        return stream(self.transport, method, port, path, body=data, headers=headers, left=left)

    def _fenced(self, script: str) -> tuple[str, ...]:
        if self.lease is None:
            raise Locked(f"{self.host.name}: nothing may be changed without its lock")
        return ("sh", "-c", FENCE + script, "sh", self.lease.path, self.lease.token)

    def _full(self, words: str, status: int) -> RemoteFailed | None:
        """The one failure that may befall whatever writes, and that more than one step must not tell in its own way."""
        if not re.search("No space left on device|Disk quota exceeded", words):
            return None
        remedy = "make room there, or set another `work` folder of the host, and run the command again"
        return RemoteFailed(f"{self.host.name}: its disk is full", status=status, evidence=words[-1500:], remedy=remedy)

    @contextmanager
    def _explaining_python(self) -> Iterator[None]:
        """Whoever has no python3 is told so, and not what a shell or an old Python says of our program."""
        try:
            yield
        except RemoteFailed as error:
            raise NoPython.seen(self.host.name, error.status, error.evidence) or error from error

    def _document(self, text: str) -> Any:
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            cut = "; it is longer than 64 MiB, and its beginning is lost" if len(text) >= LONG else ""
            words = text if len(text) <= 1000 else f"{text[:500]}\n...\n{text[-500:]}"
            raise RemoteFailed(
                f"{self.host.name}: our program answers no JSON{cut}", status=0, evidence=f"{error}\n{words}".strip()
            ) from error

    # ---- telling -------------------------------------------------------------------------------------------------

    def emit(self, kind: Kind, text: str = "", **facts: Any) -> None:
        """Put an event of this host and step into the run's stream."""
        self._emit(Event(kind, text, host=self.host.name, step=self.step, facts=facts))

    def say(self, text: str, **facts: Any) -> None:
        """Tell how far it is."""
        self.emit("said", text, **facts)

    def file(self, text: str, files: Mapping[str, str]) -> None:
        """Have files of the run that is walked here kept in its record, each whole, in the place of earlier ones."""
        self.emit("filed", text, files=files, run=self.place.run)

    def pause(self, seconds: float) -> None:
        """Sleep, unless the run is being stopped: then Interrupted."""
        if self.abort.wait(seconds):
            raise Interrupted(f"{self.host.name}: stopped in {self.step}")


class _Aside:
    def __init__(self, remote: Remote) -> None:
        self._remote = remote

    def __enter__(self) -> Remote:
        main = self._remote
        self._beside = Remote(main.host, main.transport.fresh(), main._emit, main.abort)  # noqa: SLF001
        self._beside.step, self._beside.lease, self._beside._place = main.step, main.lease, main._place  # noqa: SLF001
        return self._beside

    def __exit__(self, *_: object) -> None:
        self._beside.transport.close()


def _headers(body: Any, key: str) -> dict[str, str]:
    content = {"content-type": "application/json"} if body is not None else {}
    return {**content, "authorization": f"Bearer {key}"} if key else content


def jumps(where: Host) -> Mapping[str, Host]:
    """The hosts on the way, by the names under which they are the jump of the next one."""
    return {where.jump: where.via, **jumps(where.via)} if where.jump and where.via else {}


def reach(where: Host, emit: Emit, abort: threading.Event, said: Configuration | None = None) -> Remote:
    """Connect to a host; `said`: see `transport.connect`. Unreachable when that fails."""
    remote = Remote(where, transport.connect(where, jumps(where), said), emit, abort)
    remote.emit("host_connected")
    return remote
