"""The memory of this host: free, swap, huge pages, /dev/shm, and what control groups leave of it, as JSON; in bytes."""

# Sent to hosts as a program: standard library only, Python 3.8 or newer.

from __future__ import annotations

import json
import os
import re
from typing import Any

MEMINFO = "MemTotal MemAvailable SwapTotal SwapFree".split()
HUGE = "/sys/kernel/mm/hugepages"
TRANSPARENT = "/sys/kernel/mm/transparent_hugepage/enabled"
SHARED = "/dev/shm"
NO_LIMIT = 1 << 60  # version 1 writes the largest number of pages for "none"
# {mount's type: (limit, use, beginning of the lines of memory.stat that tell of files)} in versions 2 and 1
GROUPS = {
    "cgroup2": ("memory.max", "memory.current", ""),
    "cgroup": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
}


def text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read(1 << 20)


def number(path: str) -> int | None:
    """None where the file is missing, or holds no number ("max")."""
    try:
        return int(text(path))
    except (OSError, ValueError):
        return None


def parse_meminfo(told: str) -> dict[str, int]:
    """The lines of /proc/meminfo in MEMINFO; before Linux 3.14 there was no MemAvailable."""
    found = re.findall(r"^(\w+): +(\d+) kB$", told, re.MULTILINE)
    return {name: int(size) << 10 for name, size in found if name in MEMINFO}


def hugepages() -> list[dict[str, int]]:
    found = []
    for name in sorted(os.listdir(HUGE)) if os.path.isdir(HUGE) else []:
        total, free = (number(os.path.join(HUGE, name, part)) for part in ("nr_hugepages", "free_hugepages"))
        size = re.match(r"hugepages-(\d+)kB$", name)
        if size and total is not None and free is not None:
            found.append({"size": int(size[1]) << 10, "total": total, "free": free})
    return found


def transparent() -> str | None:
    """always, madvise or never: the word in brackets."""
    try:
        chosen = re.search(r"\[(\w+)\]", text(TRANSPARENT))
    except OSError:
        return None
    return chosen[1] if chosen else None


def parse_groups(mountinfo: str, own: str) -> list[tuple[str, str, str]]:
    """(type, mount point, path below it) of the memory controller, by /proc/self/mountinfo and /proc/self/cgroup."""
    paths = {}
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        paths.update(dict.fromkeys(controllers.split(","), path))
    found = []
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields, kind, options = left.split(" "), right.split(" ")[0], right.split(" ")[2:]
        controller = {"cgroup2": "", "cgroup": "memory"}.get(kind)
        if controller in paths and (kind == "cgroup2" or "memory" in ",".join(options).split(",")):
            below = paths[controller]
            root = fields[3].rstrip("/")  # of what is mounted here: a container may see its own part alone
            found.append((kind, fields[4], below[len(root) :] if (below + "/").startswith(root + "/") else ""))
    return found


def limits() -> list[dict[str, Any]]:
    """The control groups above us that limit memory, the nearest first."""
    found = []
    for kind, mount, below in parse_groups(text("/proc/self/mountinfo"), text("/proc/self/cgroup")):
        limit_file, use_file, spare = GROUPS[kind]
        folder = os.path.normpath(mount + "/" + below)
        while folder.startswith(mount):
            limit, used = (number(os.path.join(folder, name)) for name in (limit_file, use_file))
            if limit is not None and limit < NO_LIMIT and used is not None:
                found.append({"group": folder, "limit": limit, "used": used, "spare": reclaimable(folder, spare)})
            folder = os.path.dirname(folder)
    return found


def reclaimable(folder: str, beginning: str) -> int:
    """Bytes of files that the kernel gives up before it kills anybody; MemAvailable counts both kinds as well."""
    try:
        told = text(os.path.join(folder, "memory.stat"))
    except OSError:
        return 0
    return sum(map(int, re.findall(rf"^{beginning}(?:in)?active_file (\d+)$", told, re.MULTILINE)))


def shared() -> dict[str, Any]:
    try:
        size = os.statvfs(SHARED)
    except OSError as error:
        return {"error": error.strerror or str(error)}
    return {
        "total": size.f_blocks * size.f_frsize,
        "free": size.f_bavail * size.f_frsize,
        "free_inodes": size.f_favail if size.f_files else None,
        "writable": os.access(SHARED, os.W_OK | os.X_OK),
        "mounted": os.path.ismount(SHARED),
    }


def answer() -> dict[str, Any]:
    return {
        "memory": parse_meminfo(text("/proc/meminfo")),
        "hugepages": hugepages(),
        "transparent": transparent(),
        "groups": limits(),
        "shared": shared(),
    }


if __name__ == "__main__":
    print(json.dumps(answer()))
