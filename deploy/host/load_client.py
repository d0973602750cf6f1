"""Asks a server many things, so many at once, and keeps each answer's bytes with the time at which they came.

One thread and no parsing while it measures: an answer is read when all have come.
"""

from __future__ import annotations

import errno
import os
import re
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable

from deploy.host.load_http import Answer

PIECE = 256 << 10  # bytes of one read
LAST = re.compile(rb"(?:\A|[\r\n])data: ?\[DONE\]")
GRACE = 1.0  # seconds for a server to end an answer whose last event has come
BEAT = 1.0  # seconds after which it is told again how far it is


class Exchange:
    """One request and what became of it; times are those of time.perf_counter."""

    def __init__(self, request: bytes) -> None:
        self.request = request
        self.began = self.ended = 0.0
        self.answer = Answer()
        self.error = ""


class Connection:
    """Asks one thing after another; `exchange` is what it waits for, `until` how long."""

    def __init__(self, selector: selectors.BaseSelector, port: int, patience: float) -> None:
        self.exchange: Exchange | None = None
        self.until = 0.0
        self._selector, self._port, self._patience = selector, port, patience
        self._socket: socket.socket | None = None
        self._unsent = memoryview(b"")
        self._kept = False  # it has been answered before
        self._tail, self._whole = b"", False  # the end of what came last; whether the last event has come

    def ask(self, exchange: Exchange) -> None:
        """Begin; the answer comes with `ready`."""
        self.exchange, self._tail, self._whole = exchange, b"", False
        exchange.began = time.perf_counter()
        self.until = exchange.began + self._patience
        self._unsent = memoryview(exchange.request)
        self._kept = self._socket is not None
        if self._socket is None:
            self._connect(exchange)
        else:
            self._send(self._socket, exchange)

    def ready(self, mask: int) -> None:
        """Go on, as the socket allows."""
        found, exchange = self._socket, self.exchange
        if found is None:
            return
        if exchange is None:  # it was closed between two requests, or says more than it was asked
            self.close()
        elif mask & selectors.EVENT_WRITE:
            self._send(found, exchange)
        elif mask & selectors.EVENT_READ:
            self._receive(found, exchange)

    def late(self, now: float) -> None:
        """End it where its time is over."""
        if self.exchange is not None and now >= self.until:
            self._over(self.exchange, "" if self._whole else f"no end of the answer within {self._patience:g} s")

    def close(self) -> None:
        """Nothing is asked by it any more."""
        if self._socket is not None:
            self._selector.unregister(self._socket)
            self._socket.close()
            self._socket = None

    def _connect(self, exchange: Exchange) -> None:
        made = self._socket = socket.socket()
        made.setblocking(False)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.register(made, selectors.EVENT_WRITE, self)
        failed = made.connect_ex(("127.0.0.1", self._port))
        if failed not in (0, errno.EINPROGRESS):
            self._over(exchange, os.strerror(failed))

    def _send(self, to: socket.socket, exchange: Exchange) -> None:
        try:
            sent = to.send(self._unsent)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._broken(exchange, error.strerror or str(error))
            return
        self._unsent = self._unsent[sent:]
        self._selector.modify(to, selectors.EVENT_WRITE if self._unsent else selectors.EVENT_READ, self)

    def _receive(self, source: socket.socket, exchange: Exchange) -> None:
        try:
            data = source.recv(PIECE)
            now = time.perf_counter()
            if data:
                exchange.answer.feed(now, data)
        except BlockingIOError:
            return
        except OSError as error:
            self._broken(exchange, error.strerror or str(error))
            return
        except ValueError as error:
            self._over(exchange, str(error))
            return
        if not data:
            self._broken(exchange, "the server hung up")
        elif exchange.answer.done:
            self._over(exchange, "")
        elif not self._whole:
            seen = self._tail + data
            self._whole, self._tail = bool(LAST.search(seen)), seen[-20:]
            self.until = min(self.until, now + GRACE) if self._whole else self.until

    def _broken(self, exchange: Exchange, why: str) -> None:
        exchange.answer.closed()
        if exchange.answer.done or self._whole:
            self._over(exchange, "")
        elif self._kept and not exchange.answer.heard:  # it was closed while nobody asked: that is no fault
            self.close()
            self._kept, self._unsent = False, memoryview(exchange.request)
            self._connect(exchange)
        else:
            self._over(exchange, why)

    def _over(self, exchange: Exchange, error: str) -> None:
        exchange.ended, exchange.error = time.perf_counter(), error
        self.exchange = None
        if error or not exchange.answer.reusable:
            self.close()


class Crowd:
    """So many connections that take what waits, each the next as soon as it has its answer."""

    def __init__(self, selector: selectors.BaseSelector, size: int, port: int, patience: float) -> None:
        self._connections = [Connection(selector, port, patience) for _ in range(size)]

    def take(self, waiting: deque[Exchange]) -> list[Connection]:
        """Whoever is free asks; those that wait for an answer."""
        for connection in self._connections:
            while connection.exchange is None and waiting:  # it may fail at once
                connection.ask(waiting.popleft())
        return [connection for connection in self._connections if connection.exchange is not None]

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


class Told:
    """Tells how many have ended, not too often, and now and then that it lives."""

    def __init__(self, tell: Callable[[int], None]) -> None:
        self._tell, self._last, self._done = tell, time.perf_counter(), 0

    def now(self, done: int, *, over: bool) -> None:
        silent = time.perf_counter() - self._last
        if over or silent > (BEAT if done == self._done else BEAT / 5):
            self._last, self._done = time.perf_counter(), done
            self._tell(done)


def ask_all(
    exchanges: list[Exchange],
    crowd: Crowd,
    selector: selectors.BaseSelector,
    tell: Callable[[int], None],
) -> None:
    """Each exchange once. What else is registered with the selector has a function as its data, that is called."""
    waiting, told = deque(exchanges), Told(tell)
    while True:
        busy = crowd.take(waiting)
        told.now(len(exchanges) - len(waiting) - len(busy), over=not busy)
        if not busy:
            break
        now = time.perf_counter()
        wait = min(BEAT, max(0.0, min(connection.until for connection in busy) - now))
        for key, mask in selector.select(wait):
            if isinstance(key.data, Connection):
                key.data.ready(mask)
            else:
                key.data()
        now = time.perf_counter()
        for connection in busy:
            connection.late(now)
    crowd.close()
