"""One HTTP exchange with a server on a host, through its transport: read whole, or as it comes."""

from __future__ import annotations

import http.client
import io
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from deploy.transport import Stream, Transport

LONGEST = 64 << 20  # bytes of a body that are read
PIECE = 1 << 16

Asked = tuple[str, str, bytes | None, Mapping[str, str] | None]  # method, path, body, headers


@dataclass(frozen=True)
class HttpReply:
    """What a server answered; header names in lower case."""

    status: int
    body: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True)
class HttpStream:
    """An answer that is still on its way: status and headers are there, `pieces` are the body's bytes as they come."""

    status: int
    headers: Mapping[str, str]
    pieces: Iterator[bytes]


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
    left = lambda: deadline - time.monotonic()  # noqa: E731
    with _asked(transport, port, (method, path, body, headers), left) as response:
        content = response.read(LONGEST)
        if response.length:
            raise http.client.IncompleteRead(content, response.length)
    return HttpReply(response.status, content, _named(response))


@contextmanager
def stream(
    transport: Transport,
    method: str,
    port: int,
    path: str,
    *,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    left: Callable[[], float],
) -> Iterator[HttpStream]:
    """The same for an answer that is read as it comes: TimeoutError once no seconds are `left`.

    The request ends with the `with`; `pieces` raises what `request` does.
    """
    with _asked(transport, port, (method, path, body, headers), left) as response:
        yield HttpStream(response.status, _named(response), iter(lambda: response.read1(PIECE), b""))


@contextmanager
def _asked(
    transport: Transport, port: int, asked: Asked, left: Callable[[], float]
) -> Iterator[http.client.HTTPResponse]:
    """The response, whose body is still to be read; `left` are the seconds that a step may take."""
    method, path, body, headers = asked
    channel = transport.dial(port, timeout=left())
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.sock = _Socket(channel, left)
    try:
        connection.request(method, path, body, {"connection": "close", **(headers or {})})
        yield connection.getresponse()
    except (http.client.HTTPException, EOFError) as error:
        raise ConnectionError(f"the answer on port {port} broke off or is not HTTP: {error!r}") from error
    finally:
        channel.close()


def _named(response: http.client.HTTPResponse) -> dict[str, str]:
    return {key.lower(): value for key, value in response.getheaders()}


class _Socket(io.RawIOBase):
    """What http.client takes for a socket; `left` are the seconds that a step may take."""

    def __init__(self, stream: Stream, left: Callable[[], float]) -> None:
        self._stream = stream
        self._left = left

    def _arm(self) -> None:
        left = self._left()
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
        """http.client closes its socket before the body is read; the stream is closed by `_asked`."""
