"""The caches in which a server's compilers keep what they have built: where, how large, how much room, as JSON.

Words are NAME=VALUE, the server's environment as far as it was given one; the rest is this shell's.
"""

# Sent to hosts as a program: standard library only, Python 3.8 or newer.

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from deploy.host.cache_folders import CACHES, said_by, usual
from deploy.host.filesystem import look, parse_mounts

DOWNLOADS = "HF_HOME"  # no compiler's
MOST, LONGEST = 200000, 3.0  # files that are counted, and seconds of counting, of all caches together


def sizes(folder: str, until: float, left: int) -> tuple[int, int, bool]:
    """(bytes on the disk, files, whether these are all)."""
    size = files = 0
    waiting = [folder]
    while waiting:
        try:
            entries = list(os.scandir(waiting.pop()))
        except OSError:  # vanished, or another user's
            continue
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                else:
                    size, files = size + entry.stat(follow_symlinks=False).st_blocks * 512, files + 1
            except OSError:
                continue
        if files > left or time.monotonic() > until:
            return size, files, not waiting
    return size, files, True


def answer(*words: str) -> list[dict[str, Any]]:
    said = {**os.environ, **dict(word.partition("=")[::2] for word in words)}
    mounts = parse_mounts(Path("/proc/self/mountinfo").read_text(errors="surrogateescape"))
    until, left, found = time.monotonic() + LONGEST, MOST, []
    for variable, below, place in (cache for cache in CACHES if cache[0] != DOWNLOADS):
        path = said_by(variable, below, said) or usual(place, said)
        size, files, whole = sizes(path, until, left)
        left -= files
        told = {"variable": variable, "said": bool(said.get(variable)), "disk": look(path, mounts)}
        found.append({**told, "size": size, "files": files, "whole": whole})
    return found


if __name__ == "__main__":
    print(json.dumps(answer(*sys.argv[1:])))
