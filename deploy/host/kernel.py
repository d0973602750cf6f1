"""What the kernel says of processes that it killed for want of memory: a part of programs, no program.

The counter `oom_kill` of /proc/vmstat (since Linux 4.13) can be read by everybody, its log (`ring`) may be forbidden.
Runs on the host: Python >= 3.8, standard library only.
"""

from __future__ import annotations

import os
import re

from deploy.host.family import TICK

KILLED = re.compile(r"Kill(?:ed)? process (\d+) \((.*?)\)")  # mm/oom_kill.c: "Kill" up to 4.x, beside "Killed"
AT = re.compile(r"<\d+>\[ *(\d+\.\d+)\]")


def kills(lines: list[str], since: str, pids: set[int], names: set[str]) -> list[str]:
    """The lines about killed processes with one of these pids, since so many ticks after the boot.

    In a pid namespace of our own (a container) the kernel's pids are not ours, so a name will do there.
    """
    named = names if contained() else set()
    found = []
    for line in lines:
        killed, at = KILLED.search(line), AT.match(line)
        late = not at or float(at[1]) >= int(since) / TICK - 1
        if killed and late and (int(killed[1]) in pids or killed[2] in named):
            found.append(line)
    return found


def contained() -> bool:
    """Whether our pids are another namespace's than the kernel's first one (include/linux/proc_ns.h has its number)."""
    try:
        return os.readlink("/proc/self/ns/pid") != "pid:[4026531836]"
    except OSError:
        return False


def oom_kills() -> int | None:
    """How many processes this kernel has killed for want of memory since its boot; None where it does not count."""
    try:
        with open("/proc/vmstat", encoding="ascii") as file:
            found = re.search(r"^oom_kill (\d+)$", file.read(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) if found else None
