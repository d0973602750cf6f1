"""Keep a run's log below its cap, beside the server: logcap.py LAUNCHER, in the run's folder.

When server.log has passed `log.cap` of the manifest, what is in it becomes server.log.1, and is cut off its beginning.
The server writes on at its end (O_APPEND), and nothing of that is lost where the file system can take whole blocks out
of a file (ext4, XFS); elsewhere what comes between the last read and the truncation is.
server.log.cut says how many bytes were cut off since the launch, and "..." behind it while that changes.
Ends at once when its parent does: LAUNCHER, the pid of launch.sh. Words go to stdout.
Runs on the host: Python >= 3.8, standard library only.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import re
import signal
import sys
import time

LOG, OLD, CUT = "server.log", "server.log.1", "server.log.cut"
LOOK = (0.05, 1.0)  # seconds between two looks: as the log grows
AGAIN = 60.0  # seconds after which a failure is tried once more: a full disk does not get better by the second
PIECE = 1 << 24
UNITS = {"K": 10, "M": 20, "G": 30, "T": 40}  # powers of two
PR_SET_PDEATHSIG, COLLAPSE = 1, 0x08


def main(launcher: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(launcher):  # it ended before we asked
        return
    os.umask(0o077)
    log, cap, told = os.open(LOG, os.O_RDWR), Cap(), ""
    size, looked = 0, time.monotonic()
    while True:
        most, before, since = cap.now(), size, time.monotonic() - looked
        size, looked = os.fstat(log).st_size, time.monotonic()
        if most is None or size <= most:
            time.sleep(pause(size, size - before, since, most))
            continue
        try:
            rotate(log, libc)
            size, told = 0, ""
        except OSError as error:  # the log stays as it is
            told = tell(error, told)
            time.sleep(AGAIN)


class Cap:
    """The manifest's cap in bytes, which may change while the server runs; None: there is none."""

    def __init__(self) -> None:
        self.stamp = (0, 0)
        self.cap: int | None = None

    def now(self) -> int | None:
        path = told_in()
        try:
            found = os.stat(path)
            stamp = (found.st_ino, found.st_mtime_ns)
            if stamp != self.stamp:
                with open(path, encoding="utf-8") as manifest:
                    self.cap = in_bytes(json.load(manifest)["node"]["profile"]["log"]["cap"])
                self.stamp = stamp
        except (OSError, ValueError, KeyError, TypeError):  # what was said last holds
            pass
        return self.cap


def told_in() -> str:
    """The manifest of the run that is served: of this one, or of the current one, if its draft was exchanged in this
    server, so that it has a link to our `pid`.
    """
    theirs = os.path.join("..", "..", "current")
    shared = os.path.realpath(os.path.join(theirs, "pid")) == os.path.realpath("pid")
    return os.path.join(theirs, "manifest.json") if shared else "manifest.json"


def in_bytes(written: str | None) -> int | None:
    """`1G` as the profile's JSON has it."""
    return None if written is None else int(written.rstrip("KMGT")) << UNITS.get(written[-1], 0)


def pause(size: int, grown: int, since: float, most: int | None) -> float:
    """Seconds until half of what is left is filled, at the pace of late."""
    if most is None or grown <= 0:
        return LOOK[1]
    return min(LOOK[1], max(LOOK[0], (most - size) / 2 / grown * since))


def rotate(log: int, libc: ctypes.CDLL) -> None:
    """Copy it to its end, then cut off what was copied, at once."""
    room = os.statvfs(".")
    if room.f_bavail * room.f_frsize < os.fstat(log).st_size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), OLD)
    before = cut_so_far()
    try:
        with open(f"{OLD}.tmp", "wb", buffering=0) as copy:
            length = copied(log, copy.fileno(), 0, 2 * os.fstat(log).st_size)
            publish(f"{before} ...")
            os.replace(f"{OLD}.tmp", OLD)
            gone = collapse(log, length, libc)
            if gone:
                os.ftruncate(copy.fileno(), gone)
            else:
                gone = copied(log, copy.fileno(), length, 2 * length)
                os.ftruncate(log, 0)
            before += gone
    finally:
        publish(f"{before}")
        if os.path.exists(f"{OLD}.tmp"):
            os.unlink(f"{OLD}.tmp")


def copied(log: int, copy: int, at: int, most: int) -> int:
    """Append the log from `at` on to the copy, up to its end; where the writer is faster than we are, up to `most`."""
    while at < most:
        sent = os.sendfile(copy, log, at, PIECE)
        if not sent:
            break
        at += sent
    return at


def collapse(log: int, length: int, libc: ctypes.CDLL) -> int:
    """Take whole blocks off the log's beginning: how many bytes; 0 where this file system cannot."""
    block = os.fstatvfs(log).f_bsize
    whole = (length - 1) // block * block  # never up to the end: that would be a truncation, and is refused
    if whole <= 0 or libc.fallocate(log, COLLAPSE, ctypes.c_int64(0), ctypes.c_int64(whole)):
        return 0
    return whole


def cut_so_far() -> int:
    try:
        with open(CUT, encoding="ascii", errors="replace") as cut:
            found = re.match(r"[0-9]{1,18}(?!\S)", cut.read())  # as the readers do: anything else is 0
    except OSError:
        found = None
    return int(found.group()) if found else 0


def publish(words: str) -> None:
    with open(f"{CUT}.tmp", "w", encoding="ascii") as cut:
        cut.write(f"{words}\n")
    os.replace(f"{CUT}.tmp", CUT)


def tell(error: OSError, before: str) -> str:
    """Say it once, not every minute."""
    words = f"{LOG} stays above its cap: {error.strerror or error}"
    if words != before:
        print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {words}", flush=True)
    return words


if __name__ == "__main__":
    main(*sys.argv[1:])
