"""All processes of this host, and what a deployment's runs wrote down of theirs: launched.py RUNS."""

# Sent to hosts as a program: standard library only, Python 3.8 or newer.

from __future__ import annotations

import json
import os
import sys
from typing import Any

from deploy.host.processes import table
from deploy.host.swap_left import MARKER, pieces_left


def launchers(runs: str) -> list[list[str]]:
    """[the run's folder, pid, start ticks, boot id] of each run whose launch.sh got so far as to write them. Where
    `pid` is a link, that process is another run's launch, in which this one's draft was exchanged.
    """
    found = []
    for name in sorted(os.listdir(runs)) if os.path.isdir(runs) else []:
        folder = os.path.join(runs, name)
        pid = os.path.join(folder, "pid")
        if os.path.islink(pid):
            continue
        try:
            with open(pid, encoding="utf-8") as file:
                words = file.read().split()
        except (OSError, UnicodeDecodeError):
            continue
        if len(words) == 3 and words[0].isdecimal() and words[1].isdecimal():
            found.append([folder, *words])
    return found


def shared(folder: str) -> dict[str, Any]:
    """What `remember` wrote of the run's shared memory, and in which boot; nothing where that is not whole."""
    try:
        with open(os.path.join(folder, "shared.json"), encoding="utf-8") as file:
            told = json.load(file)
        files = [[int(device), int(inode), str(path)] for device, inode, path in told["files"]]
        segments = [int(number) for number in told["segments"]]
        return {"boot": [told["boot"], told["first"]], "files": files, "segments": segments}
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return {}


def handed(folder: str) -> list[Any]:
    """What a hand-over of weights that broke off has left in shared memory: its mark says how its pieces are called."""
    try:
        with open(os.path.join(folder, MARKER), encoding="utf-8") as file:
            pieces = pieces_left(str(json.load(file)["shm"]))
        found = [(os.lstat(path), path) for path in pieces]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return []
    return [[about.st_dev, about.st_ino, path] for about, path in found]


def answer(runs: str) -> dict[str, Any]:
    told, begun = table(), launchers(runs)
    first = next((str(one["start_ticks"]) for one in told["processes"] if one["pid"] == 1), "")
    boot = [told["boot_id"], first]
    used = [found for folder, *_ in begun if (found := shared(folder)) and found["boot"] == boot]
    used += [{"files": pieces, "segments": []} for folder, *_ in begun if (pieces := handed(folder))]
    return {**told, "launchers": begun, "shared": used}


if __name__ == "__main__":
    print(json.dumps(answer(*sys.argv[1:])))
