"""Write down which shared memory a run's processes use: remember.py FOLDER, of the run.

FOLDER/shared.json gets {"boot": the host's boot id, "first": the start ticks of its process 1, "files": [[device,
inode, path], ...], "segments": [numbers]}: once all of them are dead, nothing else tells whose it was. A container
that is started again has the same boot, and counts its inodes and segments from the beginning. Prints how many pieces.
"""

# Sent to hosts as a program: standard library only, Python 3.8 or newer.

from __future__ import annotations

import json
import os
import sys

from deploy.host.family import TICK, Member, everyone, offspring
from deploy.host.leftovers import look, segments
from deploy.host.write import write


def age(process: Member) -> float:
    """Seconds. An earlier process that had its pid may have made a segment that is older."""
    with open("/proc/uptime", encoding="ascii") as file:
        return float(file.read().split()[0]) - int(process.ticks) / TICK


def remember(folder: str) -> None:
    with open(os.path.join(folder, "pid"), encoding="utf-8") as file:
        pid, ticks, boot = file.read().split()
    known = everyone()
    launcher = known.get(int(pid))
    pids = offspring(int(pid), known) if launcher and launcher.ticks == ticks else set()
    files = [[one["device"], one["inode"], one["path"]] for one in look([])[0] if pids.intersection(one["users"])]
    made = [one["shmid"] for one in segments() if one["cpid"] in pids and one["age"] <= age(known[one["cpid"]]) + 1]
    if files or made:
        first = known[1].ticks if 1 in known else ""
        told = {"boot": boot, "first": first, "files": files, "segments": made}
        write(os.path.join(folder, "shared.json"), json.dumps(told))
    print(len(files) + len(made))


if __name__ == "__main__":
    remember(sys.argv[1])
