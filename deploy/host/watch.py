"""Follow a run's log and its launcher's life: watch.py FOLDER PID TICKS OFFSET.

The log is read from OFFSET on, in bytes since the launch; below zero, from so many before its end.
Prints JSON lines: {"log": [line, ...]} as it grows, {"alive": true} once a second, and at the end
{"gone": exit code or null} after the last words of the log. Looks every 50 ms, asks no server.
Runs on the host: Python >= 3.8, standard library only.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time

from deploy.host.log import Log, gap

LINE = 4000
CHUNK = 1 << 20
LOOK = 0.05  # seconds
REST = 1.0  # seconds


def alive(pid: str, ticks: str) -> bool:
    """The process that was launched, and not a zombie or another one that got its pid."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rpartition(b") ")[2].split()
    except OSError:
        return False
    return fields[19].decode() == ticks and fields[0] not in (b"Z", b"X")


class Lines:
    """Reads what was added, in bounded pieces; a progress bar's \\r ends a line as \\n does."""

    def __init__(self, log: Log, offset: int) -> None:
        self.log, self.offset, self.rest, self.grown = log, offset, b"", time.monotonic()

    def lines(self) -> list[str] | None:
        """The next lines; None where nothing was added."""
        whole: list[bytes] = []
        try:
            begin, data = self.log.read(self.offset, CHUNK)
        except OSError:
            return None
        if begin != self.offset:  # somebody else truncated it, or cut it off faster than it was read
            whole = [self.rest, *([gap(begin - self.offset)] if begin > self.offset else [])]
            self.offset, self.rest = begin, b""
        if not data and not whole:
            return self.quiet()
        self.offset += len(data)
        *more, self.rest = re.split(rb"[\r\n]+", self.rest + data)
        if len(self.rest) > LINE:
            more, self.rest = [*more, self.rest], b""
        self.grown = time.monotonic()
        return shown([*whole, *more])

    def quiet(self) -> list[str] | None:
        """A line without an end counts once it has rested: the last state of a progress bar has none."""
        if not self.rest or time.monotonic() - self.grown < REST:
            return None
        rest, self.rest = self.rest, b""
        return shown([rest])


def shown(lines: list[bytes]) -> list[str]:
    """As text. NULs are what a truncation leaves before the place where a writer goes on."""
    return [line[:LINE].decode(errors="replace") for line in (line.strip(b"\0") for line in lines) if line.strip()]


def tell(**what: object) -> None:
    print(json.dumps(what), flush=True)


def exit_code(folder: str) -> int | None:
    """launch.sh writes it last; None if it was killed before it could."""
    try:
        with open(os.path.join(folder, "exit")) as code:
            return int(code.read())
    except (OSError, ValueError):
        return None


def start(log: Log, offset: int) -> int:
    try:
        oldest, end = log.ends()
    except OSError:
        return max(0, offset)
    return offset if offset >= 0 else max(oldest, end + offset)


def main(folder: str, pid: str, ticks: str, offset: str) -> None:
    text = Log(folder)
    log, told = Lines(text, start(text, int(offset))), 0.0
    while True:
        living = alive(pid, ticks)  # before the log: its last words come after we saw it die
        lines = log.lines()
        if lines:
            tell(log=lines)
        if lines is not None:
            continue
        if not living:
            break
        if time.monotonic() - told >= 1:
            told = time.monotonic()
            tell(alive=True)
        time.sleep(LOOK)
    if last := shown([log.rest]):
        tell(log=last)
    tell(gone=exit_code(folder))


try:
    main(*sys.argv[1:])
except BrokenPipeError:  # nobody listens any more
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
