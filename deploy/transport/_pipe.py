"""Bytes on their way from a program to whoever reads them."""

from __future__ import annotations

import threading
import time


class Pipe:
    """A bounded buffer between two threads. When it is full it makes the program wait, or forgets the oldest bytes."""

    def __init__(self, limit: int, *, forgets: bool) -> None:
        self.total = 0  # bytes that ever came, also those forgotten
        self._limit = limit
        self._forgets = forgets
        self._bytes = bytearray()
        self._ended = False
        self._error: Exception | None = None
        self._changed = threading.Condition()

    @property
    def full(self) -> bool:
        """Whether it waits for its reader."""
        return not self._forgets and len(self._bytes) >= self._limit

    def feed(self, data: bytes) -> None:
        """Add bytes; waits while it is full."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or not self.full)
            if self._ended:
                return
            self.total += len(data)
            self._bytes += data
            if self._forgets:
                del self._bytes[: -self._limit]
            self._changed.notify_all()

    def end(self, error: Exception | None = None) -> None:
        """No more comes; the reader gets `error` after the last bytes. Only the first end counts."""
        with self._changed:
            if not self._ended:
                self._ended, self._error = True, error
            self._changed.notify_all()

    def take(self, size: int, timeout: float | None = 0.0) -> bytes:
        """Some bytes, or b"" at the end. builtin TimeoutError when none came within `timeout` seconds."""
        limit = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while not self._bytes and not self._ended:
                left = None if limit is None else limit - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError
                self._changed.wait(left)
            data = bytes(self._bytes[:size])
            del self._bytes[:size]
            self._changed.notify_all()
            if not data and self._error:
                raise self._error
            return data

    def rest(self) -> bytes:
        """All that is there now; never waits."""
        with self._changed:
            data = bytes(self._bytes)
            self._bytes.clear()
            self._changed.notify_all()
            return data
