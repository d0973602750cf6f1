"""Every process of this host that is not the kernel's, in one pass over /proc, as JSON."""

# Sent to hosts as a program: standard library only, Python 3.8 or newer.

from __future__ import annotations

import json
import os
import pwd
import re
from pathlib import Path
from typing import Any

from deploy.host.patient import Patience

KERNEL_THREAD = 0x00200000  # PF_KTHREAD
COMMAND_LIMIT = 2048  # bytes of a command line; some carry whole programs
PAGE = os.sysconf("SC_PAGE_SIZE")
VARIABLE = re.compile(rb"[A-Za-z_]\w*=")


def parse_stat(text: str) -> dict[str, Any]:
    """The fields of /proc/PID/stat; a process's name may hold spaces and parentheses, so count from the last one."""
    head, _, tail = text.rpartition(")")
    pid, _, name = head.partition(" (")
    fields = tail.split()
    return {
        "pid": int(pid),
        "name": name,
        "state": fields[0],
        "ppid": int(fields[1]),
        "pgrp": int(fields[2]),
        "session": int(fields[3]),
        "flags": int(fields[6]),
        "threads": int(fields[17]),
        "start_ticks": int(fields[19]),
        "rss": int(fields[21]) * PAGE,
    }


def parse_cgroup(text: str) -> str:
    """The path in the unified hierarchy, or (version 1) in systemd's; "" where there is neither."""
    paths = {}
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        paths[controllers] = path
    unified = paths.get("", "")
    return unified if unified.strip("/") else paths.get("name=systemd", unified)


def parse_environ(content: bytes) -> str:
    """The run that a process belongs to, by its environment; "" where that names none."""
    for word in content.split(b"\0"):
        if word.startswith(b"DEPLOY_SERVER="):
            return readable(word[len(b"DEPLOY_SERVER=") :])
    return ""


def parse_variables(content: bytes) -> dict[str, str] | None:
    """The variables of /proc/PID/environ; None where not one is there, as after setproctitle without SPT_NOENV=1,
    which writes a process's title over them.
    """
    words = [word for word in content.split(b"\0") if VARIABLE.match(word)]
    return dict(readable(word).partition("=")[::2] for word in words) if words else None


def parse_inside(status: str) -> int | None:
    """The pid that a process has in the innermost of its pid namespaces; None where that is the one we see it in."""
    _, _, rest = status.partition("\nNSpid:")
    pids = rest.partition("\n")[0].split()
    return int(pids[-1]) if len(pids) > 1 else None


def readable(content: bytes) -> str:
    """As text that can always be printed and sent."""
    return content.decode("utf-8", "backslashreplace")


def read(folder: int, name: str, limit: int = -1) -> bytes:
    with os.fdopen(os.open(name, os.O_RDONLY, dir_fd=folder), "rb") as file:
        return file.read(limit)


def user(uid: int, known: dict[int, str]) -> str:
    if uid not in known:
        try:
            known[uid] = pwd.getpwuid(uid).pw_name
        except KeyError:  # a container's user, say
            known[uid] = str(uid)
    return known[uid]


def cgroup_of(folder: int) -> str:
    try:
        return parse_cgroup(readable(read(folder, "cgroup")))
    except FileNotFoundError:  # a kernel without control groups
        return ""


def environment_of(folder: int) -> tuple[str | None, bool]:
    """The run that it names, None where it may not be read; and whether it is wiped."""
    try:
        content = read(folder, "environ")
    except OSError:
        return None, False
    return parse_environ(content), parse_variables(content) is None


def writes_of(folder: int) -> list[str]:
    """The files that its stdout and stderr lead to; what may not be seen is left out, as are pipes and devices."""
    found: list[str] = []
    for name in ("fd/1", "fd/2"):
        try:
            path = os.readlink(name, dir_fd=folder)
        except OSError:
            continue
        if path.startswith("/") and not path.startswith("/dev/") and path not in found:
            found.append(readable(os.fsencode(path)))
    return found


def words_of(folder: int) -> list[str]:
    """Its command line, or what it has made of it."""
    words = read(folder, "cmdline", COMMAND_LIMIT).rstrip(b"\0").split(b"\0")
    return [readable(word) for word in words] if words != [b""] else []


def look(folder: int, known: dict[int, str], patience: Patience) -> dict[str, Any] | None:
    """One process; None for a thread of the kernel."""
    process = parse_stat(readable(read(folder, "stat")))
    if process.pop("flags") & KERNEL_THREAD:
        return None
    status = readable(read(folder, "status"))
    uid = int(status.partition("\nUid:")[2].split()[0])
    process["uid"] = uid
    process["user"] = user(uid, known)
    process["cmdline"] = patience.read(process["state"], words_of, folder) or []
    process["cgroup"] = cgroup_of(folder)
    process["run"], process["wiped"] = patience.read(process["state"], environment_of, folder) or (None, False)
    process["inside"] = parse_inside(status)
    process["writes"] = writes_of(folder)
    return process


def look_at_all() -> list[dict[str, Any]]:
    found = []
    known: dict[int, str] = {}
    patience = Patience()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            # All files through one handle: after a death it reads nothing, never the next process with that pid.
            folder = os.open("/proc/" + name, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            continue
        try:
            found.append(look(folder, known, patience))
        except (FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            continue
        finally:
            os.close(folder)
    return sorted((process for process in found if process), key=lambda process: int(process["pid"]))


def table() -> dict[str, Any]:
    """All of them, and what makes their times and numbers mean something."""
    return {
        "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "uptime": float(Path("/proc/uptime").read_text().split()[0]),
        "ticks_per_second": os.sysconf("SC_CLK_TCK"),
        "asked_by": int(os.readlink("/proc/self")),  # as /proc numbers us, like all others
        "processes": look_at_all(),
    }


answer = table

if __name__ == "__main__":
    print(json.dumps(answer()))
