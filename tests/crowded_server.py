#!/usr/bin/env python3
"""The fake server with children of every shape that is hard to end: a stand-in for tests.

Where the environment's CROWD names a file, each name of SHAPES is started before the server begins to load, and the
file gets lines of "name<TAB>pid<TAB>start ticks". Whatever happens, they end after two minutes. MEMORY names files of
/dev/shm that it and they map, and a socket that they listen on, separated by colons.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import fake_server  # type: ignore[import-not-found]

LIFETIME = 120
NOBODY = 65534
CLONE_NEWPID = 0x20000000
EXIT = {"x86_64": 60, "aarch64": 93}  # the system call that ends one thread
telling = [-1]  # the pipe by which a process tells who it is, while it is not yet what it shall be


def here(pid=0):
    """Tell who it is; called last before it is what it shall be."""
    if telling[0] >= 0:
        os.write(telling[0], f"{pid or os.getpid()}\n".encode())
        os.close(telling[0])
        telling[0] = -1


def sleep(title="sleep", env=None):
    """Become a process that does nothing, under a title; by default with the environment it has."""
    here()
    os.execve("/bin/sleep", [title, str(LIFETIME)], dict(os.environ) if env is None else env)


def adopted(then):
    """With process 1, or who stands in for it, as parent."""
    if os.fork():
        os._exit(0)
    then()


def detached(then):
    os.setsid()
    adopted(then)


def leader():
    os.setsid()
    sleep("sglang::detokenizer", {})


def deaf():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sleep()


def stopped():
    here()
    os.kill(os.getpid(), signal.SIGSTOP)
    sleep()


def another_user():
    os.setuid(NOBODY)
    sleep()


def first_thread_ended():
    threading.Thread(target=time.sleep, args=(LIFETIME,)).start()
    here()
    ctypes.CDLL(None).syscall(EXIT[os.uname().machine], 0)


def forks_when_told_to_end():
    """As a supervisor does that replaces its worker."""

    def again(*_):
        if os.fork():
            os._exit(0)
        deaf()

    signal.signal(signal.SIGTERM, again)
    here()
    while True:
        time.sleep(LIFETIME)


def shares_the_port():
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(("127.0.0.1", int(os.environ["SHARED_PORT"])))
        listener.listen()
        here()
        time.sleep(LIFETIME)


def namespaced():
    """The first process of a pid namespace of its own, which hears no TERM; it has another pid there than here."""
    if ctypes.CDLL(None).unshare(CLONE_NEWPID):
        raise OSError("no pid namespace of its own")
    pid = os.fork()
    if not pid:
        os.close(telling[0])
        telling[0] = -1
        sleep()
    here(pid)


def quiet():
    """Nothing of it says whose it is, but its parent while that lives; and it is deaf."""
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    sleep("sglang::detokenizer", {})


QUIET = {"known by its parent alone": quiet}  # where the environment has QUIET
SHAPES = {
    "a plain child": sleep,
    "with a title": lambda: sleep("sglang::scheduler_TP0"),
    "wiped, in the session": lambda: sleep("sglang::scheduler_TP1", {}),
    "wiped, a child in a session of its own": leader,
    "adopted": lambda: adopted(sleep),
    "adopted, in a session of its own": lambda: detached(sleep),
    "adopted, in a session of its own, and wiped": lambda: detached(lambda: sleep("sglang::scheduler_TP2", {})),
    "deaf to TERM": lambda: detached(deaf),
    "stopped": stopped,
    "of another user": another_user,
    "without its first thread": first_thread_ended,
    "a zombie": here,
    "forks when told to end": lambda: detached(forks_when_told_to_end),
    "shares the port": shares_the_port,
    "in a pid namespace of its own": namespaced,
}  # fmt: skip


kept: list[object] = []  # what lives as long as it


def share(paths):
    """Make pieces of shared memory, as engines do, which nobody removes who is killed."""
    *files, address = paths
    for path in files:
        with Path(path).open("w+b") as file:
            file.truncate(1 << 20)
            mapped = mmap.mmap(file.fileno(), 1 << 20)
        mapped[:] = b"x" * (1 << 20)
        kept.append(mapped)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    listener.set_inheritable(True)
    kept.append(listener)


def ticks(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[19]


def start(shape):
    """Fork it; the pid of what came of it."""
    told, telling[0] = os.pipe()
    if not os.fork():
        try:
            os.close(told)
            shape()
        finally:
            os._exit(0)
    os.close(telling[0])
    telling[0] = -1
    with os.fdopen(told) as answer:
        return int(answer.readline())


def crowd(target):
    """Start them all, and write down who they are."""
    shapes = {**SHAPES, **(QUIET if os.environ.get("QUIET") else {})}
    pids = {name: start(shape) for name, shape in shapes.items()}
    Path(f"{target}.tmp").write_text("".join(f"{name}\t{pid}\t{ticks(pid)}\n" for name, pid in pids.items()))
    Path(f"{target}.tmp").replace(target)


if __name__ == "__main__":
    words = sys.argv[1:]
    if "-c" not in words and os.environ.get("CROWD"):
        share(os.environ["MEMORY"].split(":"))
        crowd(os.environ["CROWD"])
    fake_server.main(words)
