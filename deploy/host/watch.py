"""Follow a run's log, its launcher's life and its signs of life: watch.py FOLDER PID TICKS OFFSET.

The log is read from OFFSET on, in bytes since the launch; below zero, from so many before its end. Prints JSON lines:
{"from": the byte at which it begins to read}    at first
{"log": [line, ...]}    as it grows
{"alive": true, "silent": seconds since the last sign of life, "sign": which one that was, "compilers": [the command
    lines of those at work], "stopped": [processes that a signal has stopped]}    once a second
{"lost": {title, pid, status}}    as soon as a process that its engine had given a title is gone
{"gone": whether the launcher is, "exit": its code or null, "oom": [the kernel's lines about processes of it that it has
    killed], "unread": why these cannot be read}    at the end, after the last words of the log
After a loss the launcher has GRACE to end, and to say more. Looks every 50 ms, asks no server. However much is written
into the log, by whomever, none of this comes later for it.
Runs on the host: Python >= 3.8, standard library only.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from typing import Any, Iterator  # noqa: UP035 - Python 3.8

from deploy.host.family import member
from deploy.host.kernel import kills, oom_kills
from deploy.host.log import Log, gap
from deploy.host.ring import ring
from deploy.host.signs import Signs

LINE = 4000
CHUNK = 1 << 20
BEHIND = 16 << 20  # bytes of the log that are still read once it is over; of more, the end
LOOK = 0.05  # seconds
REST = 1.0  # seconds
GRACE = 2.0  # seconds; SGLang tells a scheduler's exit code, and ends, within a second
KILL = 9


def alive(pid: str, ticks: str) -> bool:
    """Whether the process that was launched still is."""
    found = member(pid)
    return found is not None and found.lives(ticks)


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

    def last(self) -> Iterator[list[str]]:
        """What was written until now; who goes on writing (a process that was left behind) is not waited for."""
        try:
            _, end = self.log.ends()
        except OSError:
            end = self.offset
        if end - self.offset > BEHIND:
            yield shown([self.rest, gap(end - BEHIND - self.offset)])
            self.offset, self.rest = end - BEHIND, b""
        while self.offset < end and (lines := self.lines()) is not None:
            yield lines
        yield shown([self.rest])

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


def kernel(since: str, signs: Signs, killed_before: int | None) -> dict[str, Any]:
    """The kernel's kills among the run's processes, whatever the launcher ended with: SGLang's ends with 1 when a
    scheduler was killed, vLLM's with 0. Where the kernel must not be read, its counter may tell a part.
    """
    try:
        return {"oom": kills(ring(), since, signs.pids, signs.names), "unread": ""}
    except OSError as error:
        counted = oom_kills()
        more = counted - killed_before if counted is not None and killed_before is not None else None
        told = [f"/proc/vmstat: oom_kill rose by {more} while it was watched"] if more else []
        return {"oom": told, "unread": error.strerror if more is None or more else ""}


def main(folder: str, pid: str, ticks: str, offset: str) -> None:
    text, signs, killed = Log(folder), Signs(folder, pid), oom_kills()
    log, told, lost, since = Lines(text, start(text, int(offset))), 0.0, None, 0.0
    tell(**{"from": log.offset})
    looking = threading.Thread(target=signs.keep_looking, daemon=True)
    looking.start()
    while living := alive(pid, ticks):
        lines = log.lines()
        if lines:
            signs.heard(lines)
            tell(log=lines)
        if lost is None and (lost := signs.lost()):
            since = time.monotonic()
            tell(lost=lost)
        if lost and time.monotonic() - since > GRACE:
            break
        if time.monotonic() - told >= 1:
            told = time.monotonic()
            if not looking.is_alive():
                sys.exit("the thread that looks for signs of life has ended")
            tell(alive=True, silent=round(told - signs.last, 1), **signs.told)
        if lines is None:
            time.sleep(LOOK)
    for lines in filter(None, log.last()):
        tell(log=lines)
    code = None if living else exit_code(folder)
    found = kernel(ticks, signs, killed)
    if found["unread"] and code not in (None, 128 + KILL) and not lost:  # nothing was killed: no reason to guess
        found = {"oom": [], "unread": ""}
    tell(gone=not living, exit=code, **found)


try:
    main(*sys.argv[1:])
except BrokenPipeError:  # nobody listens any more
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
