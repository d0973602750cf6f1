"""Where the processes of a run stand: a part of `evidence`, no program.

Runs on the host: Python >= 3.8, standard library only.
"""

from __future__ import annotations

import os
import shutil
import threading

from deploy.host.answers import file, program
from deploy.host.family import TICK, Member, title

MOST = 24  # processes whose stacks are asked for
STUCK = 8  # threads of one process that are told
STATES = {
    "D": "waits in the kernel for a device or a disk, and cannot be killed",
    "T": "stopped by a signal",
    "t": "stopped by a tracer",
    "Z": "dead, not reaped",
}
HEAD = "    pid    ppid  s  threads   cpu s   rss MiB    age s  waits in              title"
ROW = "{one.pid:7} {one.ppid:7}  {one.state}  {one.threads:7} {one.cpu:7.0f} {mib:9} {age:8.0f}  {waits:20.20}  {title}"
UNDER = " " * 77


def process_tree(members: dict[int, Member]) -> str:
    """Each process below its parent: state, where it waits in the kernel, memory, title; and its threads in state D."""
    if not members:
        return "no process of the run lives\n"
    uptime, lines = float(file("/proc/uptime").split()[0]), [HEAD]

    def tell(one: Member, depth: int) -> None:
        waits, age = file(f"/proc/{one.pid}/wchan").strip(), uptime - int(one.ticks) / TICK
        words = "  " * depth + (title(one.pid) or f"[{one.name}]")
        lines.append(ROW.format(one=one, mib=one.rss >> 20, age=age, waits=waits, title=words))
        if one.state in STATES:
            lines.append(UNDER + STATES[one.state])
        lines.extend(
            f"{UNDER}its thread {thread} {STATES['D']}: {file(f'/proc/{one.pid}/task/{thread}/wchan')}"
            for thread in stuck_threads(one.pid)
        )
        for other in members.values():
            if other.ppid == one.pid:
                tell(other, depth + 1)

    for one in members.values():
        if one.ppid not in members:
            tell(one, 0)
    return "\n".join(lines) + "\n"


def stuck_threads(pid: int) -> list[str]:
    """Its threads in state D beside the first one, as many as are told."""
    try:
        threads = [thread for thread in os.listdir(f"/proc/{pid}/task") if thread != str(pid)]
    except OSError:
        return []
    states = {thread: file(f"/proc/{pid}/task/{thread}/stat").rpartition(")")[2].split()[:1] for thread in threads}
    return [thread for thread in threads if states[thread] == ["D"]][:STUCK]


def kernel_stacks(members: dict[int, Member]) -> str:
    """Where each process stands in the kernel, and its threads in state D; only root may see that."""
    told = []
    for pid in list(members)[:MOST]:
        told.append(f"== {pid} {title(pid)[:100]}\n{file(f'/proc/{pid}/stack')}")
        told += [f"-- its thread {one}\n{file(f'/proc/{pid}/task/{one}/stack')}" for one in stuck_threads(pid)]
    return "\n".join(told) or "no process of the run lives\n"


def python_stacks(members: dict[int, Member], each: float) -> str:
    """What py-spy sees of each Python process, those with a title of their own (sglang::scheduler) first.

    --nonblocking: a py-spy that had to be killed while a process is stopped for it would leave it stopped.
    """
    pythons = [pid for pid in members if is_python(pid)]
    pythons = sorted(pythons, key=lambda pid: ("::" not in title(pid).partition(" ")[0], pid))[:MOST]
    if not pythons:
        return "no Python process of the run lives\n"
    spy = py_spy(members)
    if not spy:
        return (
            "there is no py-spy beside the server's python, nor in PATH: with `pip install py-spy` there is more here\n"
        )
    told = {}

    def ask(pid: int) -> None:
        told[pid] = program(each, spy, "dump", "--nonblocking", "--pid", str(pid))

    threads = [threading.Thread(target=ask, args=(pid,), daemon=True) for pid in pythons]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return "\n".join(f"== {pid} {title(pid)[:100]}\n{told[pid]}" for pid in pythons)


def is_python(pid: int) -> bool:
    """Whether it runs a Python, and is not what keeps the log short."""
    try:
        return "python" in os.path.basename(os.readlink(f"/proc/{pid}/exe")) and "logcap.py" not in title(pid)
    except OSError:
        return False


def py_spy(members: dict[int, Member]) -> str:
    """Its path: beside a program that a command line names, in the PATH of the run, or in ours; "" where none is."""
    folders = [os.path.dirname(title(pid).partition(" ")[0]) for pid in members]
    for pid in members:
        try:
            with open(f"/proc/{pid}/environ", "rb") as environ:
                paths = [word[5:] for word in environ.read().split(b"\0") if word.startswith(b"PATH=")]
        except OSError:
            continue
        folders += [os.fsdecode(path) for path in paths]
    wanted = [folder for folder in (*folders, os.environ.get("PATH", ""), os.path.expanduser("~/.local/bin")) if folder]
    return shutil.which("py-spy", path=os.pathsep.join(dict.fromkeys(wanted))) or ""
