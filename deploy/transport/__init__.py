"""How a host is reached: one small protocol, and nothing else in the tool knows about SSH.

A transport does five things: `spawn` a program with its three streams, `dial` a port of the host, `put` a small
file, `push` a folder, `close`. Everything else (`run`, deadlines, bounds on output) is built on `spawn`, once.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal, Protocol

from deploy.errors import Unreachable
from deploy.transport._configuration import Configuration

__all__ = ["Configuration", "Process", "Reachable", "Result", "Stream", "Transport", "connect", "may_be_host"]


@dataclass(frozen=True)
class Result:
    """How a program ended: exit status, and both streams as bytes, each at most `limit` long."""

    status: int
    stdout: bytes
    stderr: bytes


class Reachable(Protocol):
    """What must be known of a host to reach it: the inventory's words."""

    @property
    def name(self) -> str: ...
    @property
    def address(self) -> str: ...
    @property
    def user(self) -> str | None: ...
    @property
    def port(self) -> int | None: ...
    @property
    def key(self) -> str | None: ...
    @property
    def jump(self) -> str | None: ...
    @property
    def transport(self) -> str: ...


class Process(Protocol):
    """A program that runs on the host. Closing it closes its stdin; a deadline on the host ends it in any case."""

    def write(self, data: bytes) -> None:
        """Send bytes to its stdin; builtin BrokenPipeError when it, or the connection, is gone."""

    def close_stdin(self) -> None:
        """Tell it that no more input comes."""

    def read(self, size: int = 65536, timeout: float | None = None) -> bytes:
        """Some bytes of its stdout; b"" when it has ended.

        Raises builtin TimeoutError when none came within `timeout` seconds, Unreachable when the connection was lost,
        RemoteFailed when the program could not even be started.
        """

    def read_stderr(self) -> bytes:
        """What it wrote to stderr so far and was not read yet, the last 64 KiB of it; never waits."""

    def poll(self) -> int | None:
        """Its exit status, or None while it runs (or when the connection was lost: then `read` raises Unreachable)."""

    def close(self) -> None:
        """End it, if it has not ended: its stdin is closed, and its group gets TERM, five seconds later KILL."""


class Stream(Protocol):
    """A TCP connection to a port of the host, as much of a socket as `http.client` needs."""

    def sendall(self, data: bytes) -> None: ...
    def recv(self, size: int) -> bytes: ...
    def settimeout(self, timeout: float | None) -> None: ...
    def shutdown(self, how: int, /) -> None: ...
    def makefile(self, mode: Literal["rb"], /) -> io.BufferedReader: ...
    def close(self) -> None: ...


class Transport(Protocol):
    """A live way to one host; its methods may be called from several threads at once.

    `noise` is what the login shell wrote of its own before a program that was run here began, at most 64 KiB of each
    stream: {"stdout": ..., "stderr": ...}.
    """

    noise: Mapping[str, bytes]

    def spawn(self, argv: Sequence[str], *, deadline: float) -> Process:
        """Start a program; after `deadline` seconds it is ended on the host itself, with its process group."""

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float = 30.0, limit: int = 4 << 20) -> Result:
        """Run a program to its end. TimedOut when it passed `timeout` (and it no longer runs on the host).

        A status that is not zero is no error. Of each stream the last `limit` bytes are kept. A child that it leaves
        behind is left alone; when it holds the streams, they are given up after two seconds.
        """

    def dial(self, port: int, *, host: str = "127.0.0.1", timeout: float = 5.0) -> Stream:
        """Connect to a port as seen from the host. Raises builtin ConnectionRefusedError when nobody listens."""

    def put(self, path: str, content: bytes, *, mode: int = 0o600) -> None:
        """Write a small file: under a temporary name beside `path`, synced, then renamed over it."""

    def push(
        self,
        source: Path,
        target: str,
        *,
        progress: Callable[[int, int], None],
        timeout: float,
        guard: Sequence[str] = (),
    ) -> None:
        """Copy the folder's files into the folder `target` on the host; resumes; progress(bytes done, bytes total).

        `guard`: words that start the program that receives there, where there is one.
        """

    def fetch(self, source: str, target: Path, *, timeout: float) -> None:
        """Copy a folder or a file of the host into the local folder `target`."""

    def fresh(self) -> Transport:
        """A second, independent connection to the same host; the caller closes it."""

    def close(self) -> None:
        """Let go of the host."""


NOBODY: Mapping[str, Reachable] = MappingProxyType({})


def may_be_host() -> bool:
    """Whether this machine can be a host itself: what runs on hosts reads /proc, which macOS does not have."""
    return Path("/proc/self/stat").exists()


def connect(host: Reachable, known: Mapping[str, Reachable] = NOBODY, said: Configuration | None = None) -> Transport:
    """Reach a host; `known` holds the hosts of the inventory that may be named as its jump, `said` what OpenSSH's
    configuration says, if several hosts are reached together.

    Unreachable with a remedy; ConfigError where OpenSSH's configuration asks for what can not be done.
    """
    if host.transport == "local":
        from deploy.transport import local

        if not may_be_host():
            raise Unreachable(
                f"{host.name}: this machine runs no Linux, so it can deploy to hosts, and be none",
                remedy="put a Linux host into inventory.yaml, and name it in the profile's `hosts`",
            )
        return local.LocalTransport(host.name)
    from deploy.transport import ssh

    return ssh.reach(host, known, said)
