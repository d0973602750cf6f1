"""The questions of one hand-over, and what the server was brought to by them: a part of programs, no program.

Each that changes something is asked only while the lock is ours. Standard library, Python 3.8.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator

from deploy.host.swap_mark import Fence
from deploy.host.swap_server import Server, Unasked
from deploy.host.swap_shm import Piece

NOT_DONE = (0, 401, 403, 404)  # statuses of a question that was not obeyed in part either


class Talk:
    """What is known of the server so far: whether it is paused and was sent any weights, whether an update is open
    (`unknown` where it did not say); checksums and updates are of `ranks` ranks.
    """

    def __init__(self, server: Server, fence: Fence, ranks: int) -> None:
        self.server, self.fence, self.ranks = server, fence, ranks
        # of names in shared memory: like torch's own, which are known for what they are where they are left over
        self.prefix = f"torch_{os.getpid()}_{int.from_bytes(os.urandom(4), sys.byteorder)}_"
        self.names = 0
        self.paused = self.sent = False
        self.update = "closed"
        self.seconds: dict[str, float] = {}
        self._since = 0.0

    def change(self, question: str) -> None:
        """Ask, if the lock is ours."""
        self.fence.check()
        self.server.ask(question)

    def pause(self) -> None:
        self._since, self.paused = time.monotonic(), True
        try:
            self.change("pause")
        except Unasked as error:
            self.paused = error.status not in NOT_DONE
            raise

    def resume(self) -> None:
        self.change("resume")
        self.paused = False
        self.seconds["paused"] = round(time.monotonic() - self._since, 3)

    def begin(self, *, or_open: bool = False) -> None:
        """Open an update; with `or_open` one that may be open already will do."""
        was, self.update = self.update, "unknown"
        try:
            self.change("begin")
        except Unasked as error:
            if not (error.status == 400 and or_open):
                self.update = was if error.status in (*NOT_DONE, 400) else "unknown"
                raise
        self.update = "open"

    def end(self, *, or_none: bool = False) -> None:
        """Close the update; with `or_none` there need be none."""
        self.update = "unknown"
        try:
            self.change("end")
        except Unasked as error:
            if not (error.status == 400 and or_none):
                raise
        self.update = "closed"

    def hand(self, piece: Piece) -> None:
        """Have a piece loaded."""
        self.names += 1
        piece.fill()
        self.fence.check()
        with self.timed("sent"), piece.handed(f"{self.prefix}{self.names}") as pickled:
            self.sent = True
            self.server.update(pickled, self.ranks)

    def loaded(self) -> dict[str, str]:
        """The checksums of what is loaded now."""
        with self.timed("checked"):
            return self.server.checksums(self.ranks)

    @contextlib.contextmanager
    def timed(self, what: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[what] = round(self.seconds.get(what, 0.0) + time.monotonic() - began, 3)
