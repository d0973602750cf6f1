"""One HTTP exchange with a server on a host, through its transport."""

from __future__ import annotations

import http.client
import io
import time
from collections.abc import Mapping
from dataclasses import dataclass

from deploy.transport import Stream, Transport

LONGEST = 64 << 20  # bytes of a body that are read


@dataclass(frozen=True)
class HttpReply:
    """What a server answered; header names in lower case."""

    status: int
    body: bytes
    headers: Mapping[str, str]


def request(
    transport: Transport,
    method: str,
    port: int,
    path: str,
    *,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float = 30.0,
) -> HttpReply:
    """Ask a server that listens on the host's `port`; `timeout` seconds are for the whole exchange.

    Raises builtin ConnectionRefusedError when nobody listens, ConnectionError when the connection breaks or what
    comes is not HTTP, TimeoutError.
    """
    deadline = time.monotonic() + timeout
    stream = transport.dial(port, timeout=timeout)
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.sock = _Socket(stream, deadline)
    try:
        connection.request(method, path, body, {"connection": "close", **(headers or {})})
        response = connection.getresponse()
        content = response.read(LONGEST)
        if response.length:
            raise http.client.IncompleteRead(content, response.length)
    except (http.client.HTTPException, EOFError) as error:
        raise ConnectionError(f"the answer on port {port} broke off or is not HTTP: {error!r}") from error
    finally:
        stream.close()
    return HttpReply(response.status, content, {key.lower(): value for key, value in response.getheaders()})


class _Socket(io.RawIOBase):
    """What http.client takes for a socket: one deadline for the whole exchange."""

    def __init__(self, stream: Stream, deadline: float) -> None:
        self._stream = stream
        self._deadline = deadline

    def _arm(self) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._stream.settimeout(left)

    def sendall(self, data: bytes) -> None:
        self._arm()
        self._stream.sendall(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        self._arm()
        data = self._stream.recv(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def close(self) -> None:
        """http.client closes its socket before the body is read; the stream is closed by `request`."""
