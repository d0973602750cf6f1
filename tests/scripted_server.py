"""An HTTP server that answers with exactly the bytes it was told, at the times it was told; in a thread of the test."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

Script = Sequence[tuple[float, bytes]]  # (seconds since the piece before, what is sent then)

STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
CLOSE = STREAM + b"connection: close\r\n\r\n"
CHUNKED = STREAM + b"transfer-encoding: chunked\r\n\r\n"


def event(text: str = "", finish: str | None = None, **more: Any) -> bytes:
    """An event of a chat that is streamed."""
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return b"data: " + json.dumps({"object": "chat.completion.chunk", "choices": [choice], **more}).encode() + b"\n\n"


def usage(tokens: int) -> dict[str, Any]:
    return {"usage": {"prompt_tokens": 3, "completion_tokens": tokens}}


def last(tokens: int) -> bytes:
    """The last events: what it cost, and the end."""
    told = {"object": "chat.completion.chunk", "choices": [], **usage(tokens)}
    return b"data: " + json.dumps(told).encode() + b"\n\ndata: [DONE]\n\n"


def chunk(data: bytes) -> bytes:
    """As one chunk of a transfer in chunks."""
    return b"%x\r\n" % len(data) + data + b"\r\n"


@dataclass
class Scripted:
    """`asked` are the requests' bodies, `connections` how many there were, `most` how many were open at once."""

    port: int
    asked: list[dict[str, Any]] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    sent: list[list[float]] = field(default_factory=list)  # when each piece of each answer was sent, perf_counter
    connections: int = 0
    open: int = 0
    most: int = 0


@contextmanager
def scripted(answer: Callable[[int, dict[str, Any]], Script], version: str = "") -> Iterator[Scripted]:
    """A server on loopback; `answer(number of the request from 0, its body)` is what comes back. A script that ends
    without the end of its answer hangs up; b"" as its last piece keeps the connection. `version`: what a GET is told.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        told = Scripted(listener.getsockname()[1])
        lock = threading.Lock()

        def serve(connection: socket.socket) -> None:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with suppress(OSError), connection, connection.makefile("rb") as source:  # whoever asks may go at any time
                while head := _head(source):
                    if not head.startswith("POST"):
                        told_of = json.dumps({"version": version}).encode()
                        status = b"200 OK" if version else b"404 Not Found"
                        connection.sendall(
                            b"HTTP/1.1 %s\r\ncontent-length: %d\r\n\r\n%s" % (status, len(told_of), told_of)
                        )
                        continue
                    size = int(re.search(r"(?i)content-length: (\d+)", head)[1])  # type: ignore[index]
                    body = json.loads(source.read(size))
                    with lock:
                        number = len(told.asked)
                        told.asked.append(body)
                        told.heads.append(head)
                        told.sent.append(sent := [])
                        told.open += 1
                        told.most = max(told.most, told.open)
                    kept = False
                    due = time.perf_counter()
                    for pause, data in answer(number, body):
                        due += pause
                        time.sleep(max(0.0, due - time.perf_counter()))
                        sent.append(time.perf_counter())
                        connection.sendall(data)
                        kept = not data
                    with lock:
                        told.open -= 1
                    if not kept:
                        return

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                told.connections += 1
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        try:
            yield told
        finally:
            listener.shutdown(socket.SHUT_RDWR)  # else it waits on, and for whoever gets this number next
            accepting.join()


def _head(source: Any) -> str:
    lines = []
    while (line := source.readline()) not in (b"", b"\r\n"):
        lines.append(line.decode())
    return "".join(lines)
