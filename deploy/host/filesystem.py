"""The filesystem that holds a path, which need not exist yet: a part of programs, no program.

Runs on the host: Python >= 3.8, standard library only.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any


def parse_mounts(text: str) -> dict[str, tuple[str, str]]:
    """{mount point: (type, source)} of /proc/self/mountinfo; where one covers another, the later one counts."""
    mounts = {}
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        kind, source = right.split(" ")[:2]
        mounts[unescape(left.split(" ")[4])] = (kind, unescape(source))
    return mounts


def unescape(word: str) -> str:
    """The kernel writes space, tab, newline and backslash in octal."""
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        word = word.replace(code, char)
    return word


def look(path: str, mounts: dict[str, tuple[str, str]]) -> dict[str, Any]:
    real = Path(os.path.realpath(Path(path).expanduser()))  # resolve() raises at a loop of links
    above = (real, *real.parents)
    there = next(folder for folder in above if os.path.exists(folder))
    mount = next((str(above) for above in (there, *there.parents) if str(above) in mounts), "/")
    kind, source = mounts.get(mount, ("unknown", "unknown"))
    size = os.statvfs(there)
    return {
        "path": path,
        "real": str(real),
        "there": str(there),
        "mount": mount,
        "kind": kind,
        "source": source,
        "free": size.f_bavail * size.f_frsize,
        "total": size.f_blocks * size.f_frsize,
        # btrfs and some network filesystems count none
        "free_inodes": size.f_favail if size.f_files else None,
        "writable": os.access(there, os.W_OK | os.X_OK),
        "exposed": [str(folder) for folder in (there, *there.parents) if exposed(os.stat(folder).st_mode)],
    }


def exposed(mode: int) -> bool:
    """Whether anybody may rename what is in the folder, and put something else in its place."""
    return bool(mode & stat.S_IWOTH) and not mode & stat.S_ISVTX
