"""Every process of this host that is not the kernel's, in one pass over /proc, as JSON."""

# Sent to hosts as a program: standard library only, Python 3.8 or newer.

from __future__ import annotations

import json
import os
import pwd
from pathlib import Path
from typing import Any

KERNEL_THREAD = 0x00200000  # PF_KTHREAD
COMMAND_LIMIT = 2048  # bytes of a command line; some carry whole programs


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


def run_of(folder: int) -> str | None:
    """None where the environment may not be read."""
    try:
        return parse_environ(read(folder, "environ"))
    except OSError:
        return None


def look(folder: int, known: dict[int, str]) -> dict[str, Any] | None:
    """One process; None for a thread of the kernel."""
    process = parse_stat(readable(read(folder, "stat")))
    if process.pop("flags") & KERNEL_THREAD:
        return None
    status = read(folder, "status")
    uid = int(status.partition(b"\nUid:")[2].split()[0])
    words = read(folder, "cmdline", COMMAND_LIMIT).rstrip(b"\0").split(b"\0")
    process["uid"] = uid
    process["user"] = user(uid, known)
    process["cmdline"] = [readable(word) for word in words] if words != [b""] else []
    process["cgroup"] = cgroup_of(folder)
    process["run"] = run_of(folder)
    return process


def look_at_all() -> list[dict[str, Any]]:
    found = []
    known: dict[int, str] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            # All files through one handle: after a death it reads nothing, never the next process with that pid.
            folder = os.open("/proc/" + name, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            continue
        try:
            found.append(look(folder, known))
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
        "asked_by": os.getpid(),
        "processes": look_at_all(),
    }


answer = table

if __name__ == "__main__":
    print(json.dumps(answer()))
