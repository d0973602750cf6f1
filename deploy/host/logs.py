"""Print the end of a run's log, and go on as it grows: logs.py LINES FOLDER [CURRENT].

CURRENT is a link to the run whose log is followed: when it leads elsewhere, that run's log comes next.
Prints the log as it is, but for the run's secrets. Exit status 1 where it cannot be read.
Runs on the host: Python >= 3.8, standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys

from deploy.host.hide import Flow, forms
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


class Out:
    """The log on its way out, without the secrets of the run that it is of."""

    def __init__(self, folder: str) -> None:
        try:
            with open(os.path.join(folder, "secrets.json"), encoding="utf-8") as file:
                secrets = json.load(file).values()
        except (OSError, ValueError):
            secrets = ()
        # as bytes, which a log need not be text in
        self.flow = Flow([form.encode("utf-8", "surrogatepass").decode("latin-1") for form in forms(secrets)])

    def show(self, data: bytes) -> None:
        self.write(self.flow.add(data.decode("latin-1")))

    def end(self) -> None:
        self.write(self.flow.end())

    def write(self, text: str) -> None:
        sys.stdout.buffer.write(text.encode("latin-1"))
        sys.stdout.buffer.flush()


def copy(log: Log, at: int, out: Out) -> int:
    """Print what there is from `at` on; where it ends."""
    while True:
        begin, data = log.read(at, PIECE)
        if begin > at:
            out.end()
            out.show(b"\n%s\n" % gap(begin - at))
        if not data:
            return begin
        out.show(data)
        at = begin + len(data)


def left_alone(seconds: float) -> bool:
    """Whether who listens is gone, waited for so long: a log that is silent would never tell by a broken pipe."""
    listener = select.poll()
    listener.register(1, 0)  # errors and hang-ups are told in any case
    return bool(listener.poll(seconds * 1000))


def follow(folder: str, current: str, at: int, out: Out) -> None:
    log = Log(folder)
    while True:
        now = os.path.realpath(current)  # before the last words of the run that it led to
        with contextlib.suppress(FileNotFoundError):  # moved away
            at = copy(log, at, out)
        if now != folder and os.path.exists(os.path.join(now, "server.log")):
            out.end()
            folder, log, at, out = now, Log(now), 0, Out(now)
        elif left_alone(LOOK):
            return


def main(lines: str, folder: str, current: str = "") -> None:
    folder = os.path.realpath(folder)
    log, out = Log(folder), Out(folder)
    try:
        at = copy(log, last_lines(log, int(lines)), out)
    except OSError as error:
        sys.exit(f"{error.filename}: {error.strerror}")
    if current:
        follow(folder, current, at, out)
    out.end()


try:
    main(*sys.argv[1:])
except BrokenPipeError:  # nobody listens any more
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
