"""Write down which shared memory a run's processes use: remember.py FOLDER, of the run.

FOLDER/shared.json gets {"boot": the host's boot id, "files": [[device, inode, path], ...], "segments": [numbers]}:
once all of them are dead, nothing else tells whose it was. Prints how many pieces.
"""

# Sent to hosts as a program: standard library only, Python 3.8 or newer.

from __future__ import annotations

import json
import os
import sys

from deploy.host.family import everyone, offspring
from deploy.host.leftovers import look, segments
from deploy.host.write import write


def remember(folder: str) -> None:
    with open(os.path.join(folder, "pid"), encoding="utf-8") as file:
        pid, ticks, boot = file.read().split()
    known = everyone()
    launcher = known.get(int(pid))
    pids = offspring(int(pid), known) if launcher and launcher.ticks == ticks else set()
    files = [[one["device"], one["inode"], one["path"]] for one in look([])[0] if pids.intersection(one["users"])]
    made = [one["shmid"] for one in segments() if one["cpid"] in pids]
    if files or made:
        write(os.path.join(folder, "shared.json"), json.dumps({"boot": boot, "files": files, "segments": made}))
    print(len(files) + len(made))


if __name__ == "__main__":
    remember(sys.argv[1])
