"""Shared memory and sockets that processes may have left behind, and who uses each: leftovers.py [PATH]...

Looks at every file of /dev/shm, at the sockets that are bound to a path, at System V's segments, and at PATHs, wherever
they lie. A user is who maps it or has it open, also in another namespace; whose maps or files may not be read is told.
"""

# Sent to hosts as a program: standard library only, Python 3.8 or newer.

from __future__ import annotations

import json
import os
import re
import stat
import sys
import time
from typing import Any

from deploy.host.patient import Patience

SHM = "/dev/shm"
MOST = 4096  # files of /dev/shm, sockets
FIRST_NAMESPACE = 0xEFFFFFFC  # PROC_PID_INIT_INO, include/linux/proc_ns.h: who sees this one sees every process
SOCKET = re.compile(r"socket:\[(\d+)\]")
MAPPED = re.compile(rb"/dev/shm/([^/\n]+?)(?: \(deleted\))?\n")


def described(path: str) -> dict[str, Any] | None:
    """What a path is; None where there is nothing, or no file and no socket."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    kinds = {stat.S_IFREG: "file", stat.S_IFSOCK: "socket"}
    kind = kinds.get(stat.S_IFMT(found.st_mode))
    if not kind:
        return None
    return {
        "path": path,
        "kind": kind,
        "device": found.st_dev,
        "inode": found.st_ino,
        "size": found.st_blocks * 512,
        "uid": found.st_uid,
        "age": max(0.0, time.time() - max(found.st_mtime, found.st_ctime)),
        "users": [],
    }  # fmt: skip


def shared() -> list[str]:
    try:
        return sorted(entry.path for entry in os.scandir(SHM))[:MOST]
    except OSError:
        return []


def bound() -> dict[str, str]:
    """{inode of a socket: the path that it is bound to}, of this network namespace."""
    found: dict[str, str] = {}
    try:
        with open("/proc/net/unix", encoding="utf-8", errors="surrogateescape") as lines:
            for line in lines:
                words = line.rstrip("\n").split(None, 7)
                if len(words) > 7 and words[7].startswith("/") and len(found) < MOST:
                    found[words[6]] = words[7]
    except OSError:
        pass
    return found


def opened(pid: str) -> list[str]:
    """What its descriptors are, as the kernel names it."""
    folder, found = f"/proc/{pid}/fd", []
    for name in os.listdir(folder):
        try:
            found.append(os.readlink(f"{folder}/{name}"))
        except FileNotFoundError:  # closed meanwhile
            continue
    return found


def state(pid: str) -> str:
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b") ")[2][:1].decode()


def mapped(pid: str, devices: set[int]) -> tuple[set[tuple[int, int]], set[str]]:
    """(device, inode) of the files on these devices that it maps (proc_pid_maps(5)), and the names of those of
    /dev/shm: an overlay shows another device there than stat does.
    """
    with open(f"/proc/{pid}/maps", "rb") as maps:
        text = maps.read()
    found = set()
    for device in devices:
        shown = b"%02x:%02x" % (os.major(device), os.minor(device))
        found |= {(device, int(inode)) for inode in re.findall(rb" %s (\d+)" % shown, text)}
    return found, {os.fsdecode(name) for name in MAPPED.findall(text)}


def use(files: list[dict[str, Any]], sockets: dict[str, str]) -> list[int]:
    """Put each process's pid among the users of what it uses; the pids of those that may not be read."""
    by_inode = {(one["device"], one["inode"]): one for one in files}
    by_path: dict[str, list[dict[str, Any]]] = {}
    for one in files:
        by_path.setdefault(os.path.basename(one["path"]), []).append(one)
    devices, unread = {one["device"] for one in files if one["kind"] == "file"}, []
    patience = Patience()
    passed = {str(os.getpid()), *(["1"] if sees_all() else [])}  # a machine's init maps nothing of others
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if pid in passed:
            continue
        try:
            maps = patience.read(state(pid), mapped, pid, devices)
            if maps is None:  # it does not answer
                unread.append(int(pid))
            keys, names = maps or ((), ())
            used = [by_inode[key] for key in keys if key in by_inode]
            used += [one for name in names for one in by_path.get(name, [])]
            for link in opened(pid):
                named = SOCKET.fullmatch(link)
                path = sockets.get(named[1], "") if named else link
                # by its last part: another mount namespace has another path for it
                used += by_path.get(os.path.basename(path), []) if path.startswith("/") else []
        except PermissionError:
            unread.append(int(pid))
            continue
        except (FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            continue
        for one in used:
            if int(pid) not in one["users"]:
                one["users"].append(int(pid))
    return unread


def segments() -> list[dict[str, int]]:
    """System V's shared memory; how many have it attached counts those of every namespace. `age` is in seconds."""
    try:
        with open("/proc/sysvipc/shm", encoding="ascii") as lines:
            names, *rows = (line.split() for line in lines)
    except (OSError, ValueError):
        return []
    wanted = {name: names.index(name) for name in ("shmid", "size", "cpid", "nattch", "uid", "ctime")}
    found = [{name: int(row[at]) for name, at in wanted.items()} for row in rows]
    return [{**one, "age": int(time.time()) - one["ctime"]} for one in found]


def sees_all() -> bool:
    return os.stat("/proc/self/ns/pid").st_ino == FIRST_NAMESPACE


def look(paths: list[str]) -> tuple[list[dict[str, Any]], list[int]]:
    """All of them, each with its users, and who may not be read."""
    sockets = bound()
    wanted = dict.fromkeys([*shared(), *sockets.values(), *paths])
    files = [one for one in map(described, wanted) if one]
    return files, use(files, sockets)


def status(pid: object) -> str:
    """What /proc tells of it to everybody; "" where it is gone."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def field(text: str, name: str) -> list[str]:
    return text.partition(f"\n{name}:")[2].partition("\n")[0].split()


def uid_of(pid: int) -> int:
    """Root's is also what the kernel lets nobody else look into, whoever has it: the sshd of a login, say."""
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return -1


def numbers() -> list[int]:
    """The pids of all that live, also those in a container's own namespace, which it writes into its names."""
    found: set[int] = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        text = status(pid)
        dead = field(text, "State")[:1] in (["Z"], ["X"]) and field(text, "Threads") in (["0"], ["1"])
        found.update(() if dead else map(int, field(text, "NSpid") or [pid]))
    return sorted(found)


def answer(*paths: str) -> dict[str, Any]:
    files, unread = look(list(paths))
    return {
        "files": files,
        "segments": segments(),
        "unread": [uid for uid in map(uid_of, unread) if uid >= 0],
        "pids": numbers(),
        "uid": os.getuid(),
        "sees_all": sees_all(),
    }


if __name__ == "__main__":
    print(json.dumps(answer(*sys.argv[1:])))
