"""Hold a machine's lock for as long as bytes arrive on stdin: lease.py FILE SECONDS TOKEN OWNER.

Prints {"held": true}, {"held": false, "owner": {...}}, or {"held": false, "error": why the file cannot be used}.
The lock is a flock, so it ends with this process whatever happens to it; the lease ends it when the client is frozen
and sends nothing; closing stdin ends it at once.
Line 1 of the file is the fencing token, line 2 says who. Runs on the host: Python >= 3.8, standard library only.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import select
import stat
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


def locked(path: str) -> tuple[int, bool]:
    """The open file, and whether its lock is ours now."""
    fd = opened(path)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise OSError(errno.EINVAL, "not a regular file", path)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return fd, False
    return fd, True


def owner(fd: int) -> Any:
    """Who holds it, as the holder wrote it; it may be writing just now."""
    lines = os.pread(fd, 65536, 0).decode(errors="replace").split("\n")
    try:
        found = json.loads(lines[1])
    except (IndexError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}  # anybody may write to the file


def write(fd: int, text: str) -> None:
    os.ftruncate(fd, 0)
    os.pwrite(fd, text.encode(), 0)


def tell(**what: object) -> None:
    print(json.dumps(what), flush=True)


def why(error: OSError) -> str:
    """In words; somebody may have put a link there to have us write elsewhere."""
    return "it is a symbolic link" if error.errno == errno.ELOOP else str(error.strerror)


def main(path: str, seconds: str, token: str, who: str) -> None:
    try:
        fd, ours = locked(path)
    except OSError as error:
        tell(held=False, error=why(error))
        return
    if not ours:
        tell(held=False, owner=owner(fd))
        return
    write(fd, f"{token}\n{who}\n")
    tell(held=True)
    while select.select([0], [], [], float(seconds))[0] and os.read(0, 4096):
        pass
    write(fd, "")  # the token dies with the lease, before the lock does


main(*sys.argv[1:])
