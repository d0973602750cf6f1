"""A host over SSH: Fabric connects, everything that runs there is a channel of that one connection."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import paramiko
import tenacity

from deploy.errors import Unreachable
from deploy.transport import Reachable, _failures, rsync
from deploy.transport._calls import Calls
from deploy.transport._channel import ChannelStreams, Tunnelled
from deploy.transport._configuration import Configuration
from deploy.transport._login import PATIENCE, leave, login, ways
from deploy.transport._process import Running
from deploy.transport._pulse import Pulse
from deploy.transport._wrapper import LONGEST, wrap
from deploy.transport.openssh import Route, resolve

PROGRAMS = 8  # at once on a connection; sshd's MaxSessions is 10
QUEUE = 300.0  # seconds that one more program waits for its turn
REFUSED = 2  # why a channel was not opened (RFC 4254, 5.1)

UNSAID = "Unable to open channel."  # paramiko keeps one error for all channels: of two refused at once, one is told so


def _refused(error: BaseException) -> bool:
    """Whether sshd answered that it opens no channel now."""
    if isinstance(error, paramiko.ChannelException):
        return bool(error.code == REFUSED)
    return isinstance(error, paramiko.SSHException) and str(error) == UNSAID


# sshd counts a session until it has reaped its program, which on a busy host is after we heard of its end
FREED = tenacity.Retrying(
    retry=tenacity.retry_if_exception(_refused),
    stop=tenacity.stop_after_delay(10.0),
    wait=tenacity.wait_random_exponential(multiplier=0.05, max=0.5),
    reraise=True,
)


class SshTransport(Calls):
    """A `Transport` over one SSH connection."""

    def __init__(self, name: str, route: Route) -> None:
        self.name = name
        self._route = route
        self._connection = login(name, route)
        self._transport = self._connection.transport
        self._why = ""
        self._slots = threading.BoundedSemaphore(PROGRAMS)
        self._pulse = Pulse(self._transport, route.keepalive, route.number("serveralivecountmax", 3))

    def _start(self, argv: Sequence[str], deadline: float, keep: int | None) -> Running:
        words, mark = wrap(argv, deadline)
        command = f"exec {shlex.join(words)}".encode("utf-8", "surrogateescape")
        if len(command) > LONGEST:
            raise ValueError(f"{argv[0]}: {len(command)} bytes of words are too many; send them through stdin")
        if not self._slots.acquire(timeout=QUEUE):
            raise Unreachable(f"{self.name}: {PROGRAMS} programs run there already over this connection")
        try:
            channel = self._open(command)
        except BaseException:
            self._slots.release()
            raise
        running = Running(self.name, ChannelStreams(channel, self._terminate, self._lost), mark, keep=keep)
        running.start(self._slots.release)
        return running

    def _open(self, command: bytes) -> paramiko.Channel:
        try:
            channel: paramiko.Channel = FREED.copy()(self._transport.open_session, timeout=PATIENCE)
            channel.settimeout(PATIENCE)
            for setting in self._route.options.get("setenv", []):
                channel.set_environment_variable(*setting.split("=", 1))
            channel.exec_command(command)
            channel.settimeout(None)
        except paramiko.ChannelException as error:
            raise _failures.no_session(self.name, error) from error
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise self._lost(error=error) from error
        return channel

    def _lost(self, during: str = "", error: Exception | None = None) -> Unreachable:
        """Why the connection is gone; it is kept, since paramiko forgets it once somebody was told."""
        self._why = self._why or self._pulse.silence or _failures.broken(ways(self._connection))
        return _failures.lost(self.name, self._why or _failures.ended(error), during)

    def _terminate(self, group: int) -> None:
        with suppress(Unreachable):  # then its own deadline ends it
            self.run(["kill", "-s", "TERM", str(group)], timeout=5.0)

    def dial(self, port: int, *, host: str = "127.0.0.1", timeout: float = 5.0) -> Tunnelled:
        """Connect to a port as seen from the host. builtin ConnectionRefusedError when nobody listens."""
        try:
            channel = self._transport.open_channel("direct-tcpip", (host, port), ("127.0.0.1", 0), timeout=timeout)
        except (paramiko.SSHException, OSError, EOFError) as error:
            if _refused(error) and self._transport.is_active():
                raise ConnectionRefusedError(f"nobody listens on {host}:{port} of {self.name}") from error
            if isinstance(error, paramiko.ChannelException):
                raise _failures.no_forwarding(self.name, error) from error
            if self._transport.is_active():
                raise TimeoutError(f"{host}:{port} of {self.name} did not answer in {timeout:g} s") from error
            raise self._lost(error=error) from error
        channel.settimeout(timeout)
        return Tunnelled(channel, self._lost)

    def push(
        self,
        source: Path,
        target: str,
        *,
        progress: Callable[[int, int], None],
        timeout: float,
        guard: Sequence[str] = (),
    ) -> None:
        """Copy the folder's files into the folder `target` by rsync; resumes. Errors as in `rsync.push`."""
        rsync.push(self, self._route, source, target, progress=progress, timeout=timeout, guard=guard)

    def fetch(self, source: str, target: Path, *, timeout: float) -> None:
        """Copy a folder's files, or one file, into the local folder `target` by rsync."""
        rsync.fetch(self, self._route, source, target, timeout=timeout)

    def fresh(self) -> SshTransport:
        """A second connection to the same host."""
        return SshTransport(self.name, self._route)

    def close(self) -> None:
        """End the connection, and those to its jump hosts."""
        self._pulse.stop()
        leave(self._connection)


def reach(host: Reachable, known: Mapping[str, Reachable], said: Configuration | None = None) -> SshTransport:
    """Connect to a host of the inventory. Unreachable, or ConfigError where OpenSSH's configuration is not usable."""
    return SshTransport(host.name, resolve(host, known, said))
