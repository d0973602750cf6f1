"""A run's log as one text since its launch, although `logcap` cuts off its beginning: a part of programs, no program.

Bytes are named by their place since the launch. server.log has those from `cut` on, server.log.1 some before them.
Runs on the host: Python >= 3.8, standard library only.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator

PATIENCE = 5.0  # seconds for a cut to come to its end; whoever cuts may have been killed


def gap(count: int) -> bytes:
    """What stands in the place of bytes that nobody has read."""
    return b"[deploy: %d bytes of the log were cut off before they could be read]" % count


def in_bytes(told: str) -> int:
    """What stands first in server.log.cut; 0 where that is no number, as `logcap` goes on from."""
    found = re.match(r"[0-9]{1,18}(?!\S)", told)
    return int(found.group()) if found else 0


class Log:
    """The log in a run's folder. OSError where it cannot be read."""

    def __init__(self, folder: str) -> None:
        self.path, self.stuck = os.path.join(folder, "server.log"), ""

    def read(self, at: int, most: int) -> tuple[int, bytes]:
        """At most `most` bytes from `at` on, and where they begin.

        Later than asked for, where older ones are gone; earlier, where somebody else has truncated the log.
        """
        while True:
            cut, told = self.cut()
            found = self._read(at, most, cut)
            if self.cut()[1] == told:
                return found

    def ends(self) -> tuple[int, int]:
        """The place of the oldest byte that is kept, and that behind the last one."""
        while True:
            cut, told = self.cut()
            ends = cut - self._older(cut), cut + os.stat(self.path).st_size
            if self.cut()[1] == told:
                return ends

    def pieces(self, begin: int, end: int, most: int) -> Iterator[bytes]:
        """What is kept of the bytes between two places, in order."""
        while begin < end:
            begin, data = self.read(begin, min(most, end - begin))
            if not data:
                return
            yield data
            begin += len(data)

    def cut(self) -> tuple[int, str]:
        """How many bytes were cut off, once that stands still, and the words that say so."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                with open(self.path + ".cut", encoding="ascii", errors="replace") as file:
                    told = file.read()
            except OSError:  # nothing was cut off yet
                return 0, ""
            if "..." not in told or told == self.stuck:
                return in_bytes(told), told
            if time.monotonic() > deadline:
                self.stuck = told
            time.sleep(0.001)

    def _read(self, at: int, most: int, cut: int) -> tuple[int, bytes]:
        older = self._older(cut)
        if at < cut and older:
            with open(self.path + ".1", "rb") as file:
                at = max(at, cut - older)
                file.seek(at - (cut - older))
                return at, file.read(min(most, cut - at))
        with open(self.path, "rb") as file:
            at = max(at, cut) if at <= cut + os.fstat(file.fileno()).st_size else cut
            file.seek(at - cut)
            return at, file.read(most)

    def _older(self, cut: int) -> int:
        """How many bytes are kept before those of server.log."""
        try:
            return min(cut, os.stat(self.path + ".1").st_size)
        except OSError:
            return 0
