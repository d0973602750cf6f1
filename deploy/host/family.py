"""The processes of one run, as /proc shows them: a part of programs, no program.

Nothing here waits for a process's memory map but `title` and `marked`: behind a process that the kernel has locked in a
page fault, reading its command line or its environment may never return.
Runs on the host: Python >= 3.8, standard library only.
"""

from __future__ import annotations

import os
from typing import NamedTuple

TITLE = 2048  # bytes of a command line; some carry whole programs
PAGE, TICK = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")


class Member(NamedTuple):
    """One process, from /proc/PID/stat (proc_pid_stat(5))."""

    pid: int
    ppid: int
    session: int
    state: str
    threads: int
    ticks: str  # its start, in clock ticks since boot
    cpu: float  # seconds
    rss: int  # bytes
    name: str  # at most 15 bytes

    def lives(self, ticks: str) -> bool:
        """Whether it is the process that began then, and no zombie or another one that got its pid."""
        return self.ticks == ticks and self.state not in "ZX"


def member(pid: str) -> Member | None:
    """None where it is gone, or no process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="backslashreplace") as file:
            head, _, tail = file.read().rpartition(")")
    except OSError:
        return None
    fields = tail.split()
    cpu = (int(fields[11]) + int(fields[12])) / TICK
    name = head.partition(" (")[2]
    return Member(
        int(pid),
        int(fields[1]),
        int(fields[3]),
        fields[0],
        int(fields[17]),
        fields[19],
        cpu,
        int(fields[21]) * PAGE,
        name,
    )


def everyone() -> dict[int, Member]:
    """Every process of this host, by pid."""
    found = (member(name) for name in os.listdir("/proc") if name.isdigit())
    return {one.pid: one for one in found if one}


def title(pid: int) -> str:
    """Its command line, or what it has made of it (setproctitle), as one line."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return " ".join(file.read(TITLE).replace(b"\0", b" ").decode("utf-8", "backslashreplace").split())
    except OSError:
        return ""


def marked(pid: int, folder: str) -> bool:
    """Whether its environment says that it serves the run in `folder`; not where we may not look."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return b"DEPLOY_SERVER=" + os.fsencode(folder) in file.read().split(b"\0")
    except OSError:
        return False


def offspring(leader: int, known: dict[int, Member]) -> set[int]:
    """The pids of the launcher, of the members of its session, and of all that descends from these."""
    found = {pid for pid, one in known.items() if leader in (pid, one.session)}
    before = -1
    while before != len(found):
        before = len(found)
        found |= {pid for pid, one in known.items() if one.ppid in found}
    return found


def ancestors(pid: int, known: dict[int, Member]) -> set[int]:
    """The pids from this one up to the first process."""
    line: set[int] = set()
    while pid in known and pid not in line:
        line.add(pid)
        pid = known[pid].ppid
    return line
