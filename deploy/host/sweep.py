"""Remove what dead processes left: sweep.py FILES SEGMENTS, as `leftovers` told them.

Each is looked at once more: only that very file (device, inode), that still nobody maps or has open, is unlinked.
Prints {"removed": [paths and segments' numbers], "bytes": how much that was, "kept": {path: why}}.
"""

# Sent to hosts as a program: standard library only, Python 3.8 or newer.

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Any

from deploy.host.leftovers import look, segments

IPC_RMID = 0  # include/uapi/linux/ipc.h


def swept(wanted: dict[str, Any], now: dict[str, Any] | None) -> str:
    """Why it is kept; "" where it is gone by now."""
    if now is None:
        return ""
    if (now["device"], now["inode"]) != (wanted["device"], wanted["inode"]):
        return "it is another one by now"
    if now["users"]:
        return f"it is in use by pid {', '.join(map(str, now['users']))}"
    try:
        about = os.lstat(wanted["path"])  # who uses it took a while to find
        if (about.st_dev, about.st_ino) != (wanted["device"], wanted["inode"]):
            return "it is another one by now"
        os.unlink(wanted["path"])
    except FileNotFoundError:
        pass
    except OSError as error:
        return str(error.strerror)
    return ""


def main(files: str, numbers: str) -> None:
    wanted = json.loads(files)
    now = {one["path"]: one for one in look([one["path"] for one in wanted])[0]}
    kept = {one["path"]: why for one in wanted if (why := swept(one, now.get(one["path"])))}
    removed = [one["path"] for one in wanted if one["path"] not in kept]
    size = sum(one["size"] for one in wanted if one["path"] not in kept)
    unused = {one["shmid"]: one["size"] for one in segments() if not one["nattch"]}
    libc = ctypes.CDLL(None, use_errno=True)
    for number in json.loads(numbers):
        if number in unused and not libc.shmctl(number, IPC_RMID, None):
            removed.append(number)
            size += unused[number]
    print(json.dumps({"removed": removed, "bytes": size, "kept": kept}))


if __name__ == "__main__":
    main(*sys.argv[1:])
