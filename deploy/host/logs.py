"""Print the end of a run's log, and go on as it grows: logs.py LINES FOLDER [CURRENT [WORD...]].

LINES below zero: all that is kept. CURRENT is a link to the run whose log is followed: when it leads elsewhere, that
run's log comes next, or goes on where it is the same, of the same server; "" follows none. Prints the log as it is, but
for the run's secrets; with WORDs only lines that have one of them, a progress bar's states as lines of their own;
before those of a run a line of NEXT, where they begin (0, or a later byte where the beginning was cut off), and its
folder; and behind those that are there a line of STILL and the seconds since something was written. Exit status 1 where
it cannot be read.
Runs on the host: Python >= 3.8, standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import sys
import time

from deploy.host.hide import Flow, forms
from deploy.host.log import Log, gap

PIECE = 1 << 16
LOOK = 0.1  # seconds
NEXT, STILL = "\x1d", "\x1e"


def last_lines(log: Log, count: int) -> int:
    """Where the last `count` lines begin."""
    oldest, end = log.ends()
    at = end if count >= 0 else oldest
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


class Sieve(Out):
    """The lines that have one of some words; a piece without any is passed over as a whole."""

    def __init__(self, folder: str, begin: int, words: list[str]) -> None:
        super().__init__(folder)
        self.words, self.rest = [word.encode() for word in words], b""
        self.write(f"{NEXT}{begin} {os.fsencode(folder).decode('latin-1')}\n")

    def show(self, data: bytes) -> None:
        data = self.rest + data
        ends = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if not ends and len(data) > PIECE:  # no line is that long
            ends = len(data)
        whole, self.rest = data[:ends], data[ends:]
        if self.has_word(whole):
            super().show(b"".join(line + b"\n" for line in re.split(rb"[\r\n]+", whole) if self.has_word(line)))

    def end(self) -> None:
        if self.has_word(self.rest):
            super().show(self.rest + b"\n")
        self.rest = b""
        super().end()

    def still(self, log: Log) -> None:
        self.show(b"\n")  # ends the last state of a bar
        self.write(f"{STILL}{max(time.time() - os.stat(log.path).st_mtime, 0):.1f}\n")

    def has_word(self, data: bytes) -> bool:
        return any(word in data for word in self.words)


def outlet(folder: str, begin: int, words: list[str]) -> Out:
    return Sieve(folder, begin, words) if words else Out(folder)


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


def same(one: str, other: str) -> bool:
    """Whether both paths lead to the same file, if it is there or was: a run whose draft was exchanged in the server of
    another one has a link to that one's log.
    """
    return os.path.realpath(one) == os.path.realpath(other)


def left_alone(seconds: float) -> bool:
    """Whether who listens is gone, waited for so long: a log that is silent would never tell by a broken pipe."""
    listener = select.poll()
    listener.register(1, 0)  # errors and hang-ups are told in any case
    return bool(listener.poll(seconds * 1000))


def follow(folder: str, current: str, at: int, out: Out, words: list[str]) -> None:
    log = Log(folder)
    while True:
        now = os.path.realpath(current)  # before the last words of the run that it led to
        with contextlib.suppress(FileNotFoundError):  # moved away
            at = copy(log, at, out)
        if now != folder and os.path.exists(os.path.join(now, "server.log")):
            if same(log.path, os.path.join(now, "server.log")):
                folder, log = now, Log(now)
                continue
            out.end()
            folder, log, at, out = now, Log(now), 0, outlet(now, 0, words)
        elif left_alone(LOOK):
            return


def main(lines: str, folder: str, current: str = "", *words: str) -> None:
    folder = os.path.realpath(folder)
    log = Log(folder)
    try:
        at = last_lines(log, int(lines))
        out = outlet(folder, at, list(words))
        at = copy(log, at, out)
        if isinstance(out, Sieve):
            out.still(log)
    except OSError as error:
        sys.exit(f"{error.filename}: {error.strerror}")
    if current:
        follow(folder, current, at, out, list(words))
    out.end()


try:
    main(*sys.argv[1:])
except BrokenPipeError:  # nobody listens any more
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
