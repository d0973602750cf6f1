"""Hold a machine's lock for as long as bytes arrive on stdin: lease.py FILE SECONDS TOKEN OWNER.

Prints {"held": true} or {"held": false, "owner": {...}}. The lock is a flock, so it ends with this process whatever
happens to it; the lease ends it when the client is frozen and sends nothing; closing stdin ends it at once.
Line 1 of the file is the fencing token, line 2 says who. Runs on the host: Python >= 3.8, standard library only.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import select
import sys
from typing import Any


def opened(path: str) -> int:
    """Open the lock for any user of the machine.

    Never O_CREAT on an existing file: the kernel refuses that in a sticky folder when another user owns the file
    (fs.protected_regular), which is why flock(1) does not do here.
    """
    for _ in range(3):
        try:
            return os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            pass
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        except FileExistsError:
            continue
        os.fchmod(fd, 0o666)
        return fd
    raise OSError(errno.EAGAIN, "the lock file comes and goes", path)


def owner(fd: int) -> Any:
    """Who holds it, as the holder wrote it; it may be writing just now."""
    lines = os.pread(fd, 65536, 0).decode(errors="replace").split("\n")
    try:
        return json.loads(lines[1])
    except (IndexError, ValueError):
        return {}


def write(fd: int, text: str) -> None:
    os.ftruncate(fd, 0)
    os.pwrite(fd, text.encode(), 0)


def main(path: str, seconds: str, token: str, who: str) -> None:
    fd = opened(path)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(json.dumps({"held": False, "owner": owner(fd)}), flush=True)
        return
    write(fd, f"{token}\n{who}\n")
    print(json.dumps({"held": True}), flush=True)
    while select.select([0], [], [], float(seconds))[0] and os.read(0, 4096):
        pass
    write(fd, "")  # the token dies with the lease, before the lock does


main(*sys.argv[1:])
