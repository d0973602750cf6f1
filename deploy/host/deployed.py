"""What deployments a machine has, what runs of them live, and what the lock says: a part of programs, no program.

Everything is derived: from the run folders, from /proc, from the exit code that launch.sh wrote.
Runs on the host: Python >= 3.8, standard library only.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import time
from typing import Any

from deploy.host.swap_left import MARKER

Answer = dict[str, Any]
Served = dict[str, list[str]]


def text(*path: str) -> str:
    try:
        with open(os.path.join(*path), encoding="utf-8") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def machine() -> str:
    """The machine's id, since the work folder may be one NFS for all hosts; the host name where it has none."""
    return text("/etc/machine-id") or socket.gethostname()


def alive(pid: str, ticks: str, boot: str) -> bool:
    """The process that was launched: same start, same boot, and no zombie."""
    if boot != text("/proc/sys/kernel/random/boot_id"):
        return False
    fields = text("/proc", pid, "stat").rpartition(") ")[2].split()
    return len(fields) > 19 and fields[19] == ticks and fields[0] not in "ZX"


def document(*path: str) -> Any:
    """A JSON object; None where there is none, or only a part of one."""
    try:
        found = json.loads(text(*path))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def marks() -> Served:
    """The folders of runs that living processes serve, by DEPLOY_SERVER in their environment, and their pids."""
    found: Served = {}
    for pid in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else []):
        try:
            with open(f"/proc/{pid}/environ", "rb") as environ:
                words = environ.read().split(b"\0")
        except OSError:  # another user's, or gone
            continue
        for word in words:
            if word.startswith(b"DEPLOY_SERVER="):
                found.setdefault(os.fsdecode(word[14:]), []).append(pid)
    return found


def server(folder: str) -> str:
    """The folder of the run that launched the server of this one: of a run whose draft was exchanged in it, `pid` is a
    link into that, which lies beside this one.
    """
    pid = os.path.join(folder, "pid")
    if not os.path.islink(pid):
        return folder
    return os.path.join(os.path.dirname(folder), os.path.basename(os.path.dirname(os.readlink(pid))))


def run(folder: str, served: Served) -> Answer:
    identity = [*text(folder, "pid").split(), "", "", ""][:3]
    draft, launched = os.path.join(folder, "draft"), server(folder)
    return {
        "id": os.path.basename(folder),
        "folder": folder,
        "manifest": document(folder, "manifest.json"),
        "verdict": document(folder, "verdict.json"),
        "draft": os.readlink(draft) if os.path.islink(draft) else None,
        "pid": identity[0],
        "ticks": identity[1],
        "alive": bool(identity[0]) and alive(*identity),
        "exit": text(folder, "exit"),
        "stopped": text(folder, "stopped"),
        "left": sum(pid != identity[0] for pid in served.get(launched, [])),
        "server": launched,
        "torn": os.path.lexists(os.path.join(launched, MARKER)),
    }


def linked(folder: str, name: str, served: Served) -> Answer | None:
    """The run that a link names, if it is still there; what lies elsewhere is no run of this deployment."""
    target = os.path.realpath(os.path.join(folder, name))
    ours = os.path.dirname(target) == os.path.realpath(os.path.join(folder, "runs"))
    return run(target, served) if ours and os.path.isdir(target) else None


def living(runs: str, served: Served) -> Answer | None:
    """Where the link is broken: the run that lives, if one does; of those that share its server, the last whose draft
    came into it (`weights.json`).
    """
    runs = os.path.realpath(runs)
    lived = sorted(folder for folder in served if os.path.dirname(folder) == runs and os.path.isdir(folder))
    if not lived:
        return None
    others = [os.path.join(runs, name) for name in os.listdir(runs) if os.path.join(runs, name) != lived[-1]]
    came = [one for one in others if server(one) == lived[-1] and os.path.exists(os.path.join(one, "weights.json"))]
    return run(max(came, default=lived[-1]), served)


def source(current: Answer | None, runs: str, served: Served) -> Answer | None:
    """The run that the current one went back to, if it did."""
    name = ((current or {}).get("manifest") or {}).get("source")
    folder = os.path.join(runs, str(name))
    return run(folder, served) if name and os.path.isdir(folder) else None


def deployments(root: str, served: Served) -> Answer:
    names = sorted(os.listdir(root)) if os.path.isdir(root) else []
    found: Answer = {}
    for name in names:
        folder = os.path.join(root, name)
        runs = os.path.join(folder, "runs")
        current = linked(folder, "current", served) or living(runs, served)
        if current or os.path.isdir(runs):
            found[name] = {
                "current": current,
                "previous": linked(folder, "previous", served),
                "source": source(current, runs, served),
                "runs": sorted(os.listdir(runs)) if os.path.isdir(runs) else [],
            }
    return found


def lock(path: str) -> Answer:
    """What the lock's file says, by our clock, and whether somebody has it; or why that cannot be told.

    Who only looks must not lock: a client that takes it at that moment would be refused.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):  # never taken
        return {}
    except OSError as error:
        return {"error": "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror}
    try:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode):
            return {"error": "not a regular file"}
        lines = os.pread(fd, 65536, 0).decode(errors="replace").split("\n")
    except OSError as error:
        return {"error": error.strerror}
    finally:
        os.close(fd)
    locks = [line.split() for line in text("/proc/locks").splitlines()]
    taken = any(words[1] == "FLOCK" and words[5].endswith(f":{about.st_ino}") for words in locks if len(words) > 5)
    return {"lines": lines[1:3], "taken": taken, "now": time.time()}


def seen(work: str, lock_file: str, served: Served) -> Answer:
    """All of it; `served` are the `marks`."""
    work = os.path.realpath(os.path.expanduser(work))  # as a launched server sees it
    root = os.path.join(work, machine())
    return {
        "machine": machine(),
        "hostname": socket.gethostname(),
        "user": os.environ.get("USER") or str(os.getuid()),
        "home": os.path.expanduser("~"),
        "work": work,
        "root": root,
        "deployments": deployments(root, served),
        "lock": lock(lock_file),
    }
