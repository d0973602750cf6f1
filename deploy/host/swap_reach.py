"""Whether a server can take what is handed over to it, before it is: a part of programs, no program.

What torch cannot do for it raises in its scheduler, or overwrites its memory, and kills the server. Python 3.8.
"""

from __future__ import annotations

import os

from deploy.host.family import everyone, offspring
from deploy.host.swap_left import SHM

TEMPORARY = ("TMPDIR", "TMP", "TEMP", "TEMPDIR")  # the first that is set, as c10/util/tempfile.cpp looks
# torch copies the path of its manager's socket without a look at its length (libshm/socket.h): 108 bytes (unix(7)).
NAMED = 107 - len("/torch-shm-dir-XXXXXX/manager.sock")


def obstacle(folder: str) -> str:
    """What is in the way of the processes of the server that was launched in this folder; "" where nothing is."""
    try:
        with open(os.path.join(folder, "pid"), encoding="utf-8") as file:
            words = file.read().split()
    except (OSError, UnicodeDecodeError):
        return f"{folder} does not tell which process is the server"
    known = everyone()
    leader = known.get(int(words[0])) if words and words[0].isdecimal() else None
    if leader is None or (len(words) > 1 and not leader.lives(words[1])):
        return "the server's process is gone"
    members = sorted(offspring(leader.pid, known))
    return next(filter(None, (_hinders(pid) for pid in members if known[pid].state not in "ZX")), "")


def _hinders(pid: int) -> str:
    try:
        theirs, ours = os.stat(f"/proc/{pid}/root{SHM}"), os.stat(SHM)
        with open(f"/proc/{pid}/environ", "rb") as file:
            said = dict(line.partition(b"=")[::2] for line in file.read().split(b"\0"))
    except (FileNotFoundError, ProcessLookupError):
        return ""  # it has ended
    except OSError as error:
        return f"its process {pid} may not be looked at: {error.strerror}"
    if (theirs.st_dev, theirs.st_ino) != (ours.st_dev, ours.st_ino):
        return f"its process {pid} has a {SHM} of its own, as in a container"
    named = (said[os.fsencode(name)] for name in TEMPORARY if os.fsencode(name) in said)
    temporary = os.fsdecode(next(named, b"/tmp"))
    if len(os.fsencode(temporary)) > NAMED:
        return f"its folder for temporary files has a name of more than {NAMED} bytes: {temporary}"
    base = f"/proc/{pid}/root" if temporary.startswith("/") else f"/proc/{pid}/cwd/"
    if not os.access(base + temporary, os.W_OK | os.X_OK):
        return f"it cannot write into its folder for temporary files, {temporary}"
    return ""
