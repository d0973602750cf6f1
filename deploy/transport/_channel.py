"""A channel of an SSH connection, as the streams of a program or as a socket."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Literal

import paramiko

from deploy.errors import Unreachable
from deploy.transport._wrapper import KILLED


class ChannelStreams:
    """A program behind a channel as streams."""

    def __init__(
        self, channel: paramiko.Channel, terminate: Callable[[int], None], lost: Callable[[str], Unreachable]
    ) -> None:
        self._channel = channel
        self._terminate = terminate
        self._lost = lost

    def receive(self) -> bytes:
        return self._channel.recv(65536)

    def receive_stderr(self) -> bytes:
        return self._channel.recv_stderr(65536)

    def send(self, data: bytes) -> None:
        try:
            self._channel.sendall(data)
        except (OSError, EOFError, paramiko.SSHException) as error:
            raise BrokenPipeError from error

    def shut(self) -> None:
        try:
            self._channel.shutdown_write()
        except (EOFError, paramiko.SSHException) as error:
            raise BrokenPipeError from error

    def wait(self) -> int | Unreachable:
        status = self._channel.recv_exit_status()
        if status >= 0:
            return status
        # none came: killed by a signal (paramiko passes over "exit-signal"), or the connection is gone
        ended_there = self._channel.eof_received and self._channel.get_transport().is_active()
        return KILLED if ended_there else self._lost(" while a program ran")

    def cut(self) -> None:
        self._channel.close()

    def terminate(self, group: int) -> None:
        self._terminate(group)


class Tunnelled:
    """A channel to a port, as much of a socket as http.client needs.

    http.client closes its socket before it reads the body. A socket lives on in its files; a channel would be gone.
    """

    def __init__(self, channel: paramiko.Channel, lost: Callable[[], Unreachable]) -> None:
        self._channel = channel
        self._lost = lost
        self._files = 0
        self._closed = False

    def sendall(self, data: bytes) -> None:
        try:
            self._channel.sendall(data)
        except TimeoutError:
            raise
        except (EOFError, OSError, paramiko.SSHException) as error:
            self._look()
            raise ConnectionResetError(str(error)) from error

    def recv(self, size: int) -> bytes:
        """What came; b"" at the end. Unreachable where it is not the server that hung up, but the host that is lost."""
        data = self._channel.recv(size)
        if not data:
            self._look()
        return data

    def _look(self) -> None:
        if not self._channel.get_transport().is_active():
            raise self._lost()

    def settimeout(self, timeout: float | None) -> None:
        self._channel.settimeout(timeout)

    def shutdown(self, _how: int, /) -> None:
        """Say that no more comes from us (socket.SHUT_WR); the answer may still be read."""
        self._channel.shutdown_write()

    def makefile(self, _mode: Literal["rb"] = "rb", /) -> io.BufferedReader:
        self._files += 1
        return io.BufferedReader(_File(self))

    def close(self) -> None:
        self._closed = True
        if not self._files:
            self._channel.close()

    def release(self) -> None:
        """A file made from it was closed."""
        self._files -= 1
        if self._closed:
            self.close()


class _File(io.RawIOBase):
    def __init__(self, stream: Tunnelled) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._stream.recv(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._stream.release()
