"""Print the end of a run's log, and go on as it grows: logs.py LINES FOLDER [CURRENT].

CURRENT is a link to the run whose log is followed: when it leads elsewhere, that run's log comes next.
Prints the log as it is. Exit status 1 where it cannot be read.
Runs on the host: Python >= 3.8, standard library only.
"""

from __future__ import annotations

import os
import sys
import time

from deploy.host.log import Log, gap

PIECE = 1 << 16
LOOK = 0.1  # seconds


def last_lines(log: Log, count: int) -> int:
    """Where the last `count` lines begin."""
    oldest, end = log.ends()
    at = end
    while count and at > oldest:
        begin = max(oldest, at - PIECE)
        data = b"".join(log.pieces(begin, at, PIECE))
        place = len(data) - (at == end and data.endswith(b"\n"))  # the last line's own end begins no other
        while (place := data.rfind(b"\n", 0, place)) >= 0:
            count -= 1
            if not count:
                return begin + place + 1
        at = begin
    return at


def show(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def copy(log: Log, at: int) -> int:
    """Print what there is from `at` on; where it ends."""
    while True:
        begin, data = log.read(at, PIECE)
        if begin > at:
            show(b"\n%s\n" % gap(begin - at))
        if not data:
            return begin
        show(data)
        at = begin + len(data)


def follow(folder: str, current: str, at: int) -> None:
    log = Log(folder)
    while True:
        now = os.path.realpath(current)  # before the last words of the run that it led to
        try:
            at = copy(log, at)
        except FileNotFoundError:  # moved away
            time.sleep(LOOK)
        if now != folder and os.path.exists(os.path.join(now, "server.log")):
            folder, log, at = now, Log(now), 0
        else:
            time.sleep(LOOK)


def main(lines: str, folder: str, current: str = "") -> None:
    folder = os.path.realpath(folder)
    log = Log(folder)
    try:
        at = copy(log, last_lines(log, int(lines)))
    except OSError as error:
        sys.exit(f"{error.filename}: {error.strerror}")
    if current:
        follow(folder, current, at)


try:
    main(*sys.argv[1:])
except BrokenPipeError:  # nobody listens any more
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
