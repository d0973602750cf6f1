"""What a host shows of a run that died or is silent: evidence.py FOLDER PORT SECONDS PATH...

Looks side by side, each in a thread of its own, since any of them may hang with what it looks at: a GPU, a disk, a
process in the kernel. PATH... lie on the disks that are told of. Prints a JSON line {"name", "text"} as each look ends
and {"end": true} as the last one, after SECONDS at most: what is looked at still is told as such, and left.
It changes nothing, and stops no process, not even for a moment.
Runs on the host: Python >= 3.8, standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import sys
import threading
import time
from typing import Callable  # noqa: UP035 - Python 3.8

from deploy.host.evidence_log import log_tail, nccl_told, rank_tails
from deploy.host.evidence_machine import connections, disks, gpus, kernel_words, memory, shared_memory
from deploy.host.evidence_processes import kernel_stacks, process_tree, python_stacks
from deploy.host.family import Member, ancestors, everyone, marked, offspring

TAIL = 64 << 10  # bytes of the log as it is
KEPT = 256 << 10  # characters of each text
MARKED = 1.0  # seconds for the run's pid and the environments of other processes
OF_PROCESSES = ("processes.txt", "py-spy.txt", "kernel-stacks.txt", "connections.txt")
UNSURE = "which processes are the run's could not be told: its folder, or a process's memory, hangs. As far as known:\n"


def looks(
    folder: str, port: int, paths: list[str], members: dict[int, Member], each: float
) -> dict[str, Callable[[], str]]:
    """What is looked at, by the name of the file that it becomes; a program gets `each` seconds."""
    return {
        "server.log": lambda: log_tail(folder, TAIL),
        "ranks.log": lambda: rank_tails(folder),
        "nccl.txt": lambda: nccl_told(folder, members),
        "processes.txt": lambda: process_tree(members),
        "py-spy.txt": lambda: python_stacks(members, each),
        "kernel-stacks.txt": lambda: kernel_stacks(members),
        "connections.txt": lambda: connections(members, port),
        "disks.txt": lambda: disks(paths, each / 2),  # one program after the other
        "shm.txt": shared_memory,
        "memory.txt": lambda: memory(members),
        "nvidia-smi.txt": lambda: gpus(each),
        "dmesg.txt": lambda: kernel_words(each / 2),
    }


def processes_of(folder: str) -> tuple[dict[int, Member], bool]:
    """The launcher's, by session and descent, and who has the run's folder in its environment, none of our own; and
    whether these are all. Nobody waits for longer than `MARKED`: the folder may be on a disk that hangs.
    """
    known = everyone()
    found: set[int] = set()

    def search() -> None:
        found.update(offspring(launcher(folder), known))
        found.update([pid for pid in known if pid not in found and marked(pid, folder)])

    thread = threading.Thread(target=search, daemon=True)
    thread.start()
    thread.join(MARKED)
    return {pid: known[pid] for pid in sorted(found - ancestors(os.getpid(), known))}, not thread.is_alive()


def launcher(folder: str) -> int:
    """Its pid, as it wrote it; -1 where it did not."""
    try:
        with open(os.path.join(folder, "pid")) as pid:
            return int(pid.read().split()[0])
    except (OSError, ValueError, IndexError):
        return -1


def tell(**what: object) -> None:
    print(json.dumps(what), flush=True)


def main(folder: str, port: str, seconds: str, *paths: str) -> None:
    deadline = time.monotonic() + float(seconds)
    members, whole = processes_of(folder)
    wanted = looks(folder, int(port), [folder, *paths], members, float(seconds) / 2)
    seen: queue.Queue[tuple[str, str]] = queue.Queue()

    def look(name: str) -> None:
        try:
            text = wanted[name]()
        except Exception as error:  # noqa: BLE001 - a look that fails says so in its place; the others are as good
            text = f"could not be looked at: {error!r}\n"
        seen.put((name, text if whole or name not in OF_PROCESSES else UNSURE + text))

    for name in wanted:
        threading.Thread(target=look, args=(name,), daemon=True).start()
    left = set(wanted)
    while left:
        try:
            name, text = seen.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        left.discard(name)
        tell(name=name, text=text if len(text) <= KEPT else text[-KEPT:].partition("\n")[2])
    for name in sorted(left):
        tell(name=name, text=f"not seen within {seconds} s: what is looked at hangs\n")
    tell(end=True)


def end_programs() -> None:
    """What was asked and has not answered is not left behind."""
    for one in everyone().values():
        if one.ppid == os.getpid():
            with contextlib.suppress(OSError):
                os.kill(one.pid, signal.SIGKILL)


with contextlib.suppress(BrokenPipeError):  # nobody listens any more
    main(*sys.argv[1:])
end_programs()
os._exit(0)  # not after threads that hang
