"""Who has the driver's device files open, and which of them is which GPU's, as JSON.

nvidia-smi names processes that have a context on a GPU, and in a container often none; whoever has memory there has its
device file open. Only descriptors are looked at: behind a process that hangs, reading its memory map may never return.
"""

# Sent to hosts as a program: standard library only, Python 3.8 or newer.

from __future__ import annotations

import glob
import json
import os
import re
from typing import Any

DEVICES = "/dev/nvidia"
DRIVER = "/proc/driver/nvidia/gpus/*/information"  # "GPU UUID: 	 GPU-...", "Device Minor: 	 3"


def opened(pid: str, prefix: str) -> list[str]:
    """The device files that it has open, each once. OSError where it may not be seen, or is gone."""
    found = set()
    for handle in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{handle}")
        except FileNotFoundError:  # closed meanwhile
            continue
        if target.startswith(prefix):
            found.add(target)
    return sorted(found)


def minors() -> dict[str, int]:
    """{GPU's UUID: the number of its device file}, as the driver has it; a container may not see that."""
    found = {}
    for path in glob.glob(DRIVER):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                text = file.read(4096)
        except OSError:
            continue
        uuid = re.search(r"^GPU UUID:\s+(GPU-[\w-]+)", text, re.MULTILINE)
        minor = re.search(r"^Device Minor:\s+(\d+)", text, re.MULTILINE)
        if uuid and minor:
            found[uuid[1]] = int(minor[1])
    return found


def answer(prefix: str = DEVICES) -> dict[str, Any]:
    """`unread` are the pids that another user has, and that may have some open as well; `there`: a GPU's file is."""
    found, unread = [], []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            files = opened(pid, prefix)
        except PermissionError:
            unread.append(int(pid))
            continue
        except OSError:  # it ended meanwhile
            continue
        if files:
            found.append({"pid": int(pid), "files": files})
    return {"open": found, "unread": unread, "minors": minors(), "there": bool(glob.glob(prefix + "[0-9]*"))}


if __name__ == "__main__":
    print(json.dumps(answer()))
