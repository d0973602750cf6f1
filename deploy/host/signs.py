"""Signs of life of a run's processes, and the loss of one of them: a part of `watch.py`, no program.

Signs are bytes that are read, memory that grows (the host's or a GPU's), compilers at work, files of their caches that
change; and what the log says for the first time. CPU and GPU utilisation are none: a NCCL that hangs spins both.
Runs on the host: Python >= 3.8, standard library only.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from typing import Any

from deploy.host.cache_folders import CACHES, said_by, usual
from deploy.host.family import Member, ancestors, everyone, marked, member, title

ENOUGH = 16 << 20  # bytes: the pollers and heartbeats of a hung server read and allocate less within minutes
PACE, SPARED, SLOWEST = 1.0, 100, 10.0  # seconds between two looks; so many times what one cost; but no longer
QUIET = 5.0  # seconds without a sign after which caches and GPUs are looked at as well, so often
DEEP, MANY = 4, 4000  # levels and entries of a cache that are looked at
SAID = 512  # lines of the log that are remembered
SHOWN = 200  # compilers, and characters of the command line of each

# Processes that an engine gives a title (setproctitle, which cuts `comm` to 15 bytes) and needs: SGLang 0.5.8 to 0.5.23
# (managers/scheduler.py, detokenizer_manager.py, data_parallel_controller.py), vLLM (utils/system_utils.py).
TITLES = ("sglang::", "VLLM::")
COMPILERS = frozenset(
    "nvcc cicc ptxas fatbinary nvlink cudafe++ ninja cmake make gcc g++ cc c++ cc1 cc1plus collect2 as ld clang "
    "clang++ ld.lld hipcc".split()
)
HOLDERS = ("nvidia-smi", "--query-compute-apps=pid,used_gpu_memory", "--format=csv,noheader,nounits")

# The time of day, how long something lasts, who asked, and colours: what differs where a line is said again.
PASSING = re.compile(
    r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?|\d+:\d\d(?::\d\d)?|\d+\.\d+\.\d+\.\d+:\d+|\x1b\[[0-9;]*m"
)


class Members:
    """The living processes of a run: its launcher, the members of a session that the launcher or a marked process
    leads, and whoever has the run's folder in its environment (`DEPLOY_SERVER`). Each process is judged once.
    """

    def __init__(self, folder: str, launcher: str) -> None:
        self.folder, self.launcher = folder, int(launcher)
        self.ours: set[int] = set()
        self.others = ancestors(os.getpid(), everyone())  # whoever asks is no part of it
        self.sessions: set[int] = set()

    def now(self) -> dict[int, Member]:
        pids = {int(name) for name in os.listdir("/proc") if name.isdigit()}
        self.others &= pids
        found = {}
        for pid in sorted(pids - self.others):
            one = member(str(pid))
            if one is None:
                continue
            if pid in self.ours or self._joins(one):
                found[pid] = one
            else:
                self.others.add(pid)
        self.ours = set(found)
        return found

    def _joins(self, one: Member) -> bool:
        ours = one.pid == self.launcher or one.session in self.sessions or marked(one.pid, self.folder)
        if ours and one.pid == one.session:
            self.sessions.add(one.pid)
        return ours


class Signs:
    """`last` is when (monotonic) the newest sign was seen, `what` in words; `compilers` are those at work, `stopped`
    those processes that a signal or a debugger has stopped.
    """

    def __init__(self, folder: str, launcher: str) -> None:
        self.last, self.what = time.monotonic(), ""
        self.compilers: list[str] = []
        self.stopped: list[str] = []
        self.pids: set[int] = set()
        self.names: set[str] = set()
        self.engines: dict[int, tuple[Member, str]] = {}
        self.members = Members(folder, launcher)
        self.before: dict[str, dict[Any, int]] = {}
        self.grown: dict[str, int] = {}
        self.said: dict[str, None] = {}
        self.looked = self.last

    def keep_looking(self) -> None:
        """A thread of its own: what it looks at may block, on a dead NFS or behind a driver that hangs."""
        while True:
            spent = time.thread_time()
            self.look()
            if time.monotonic() - max(self.last, self.looked) > QUIET:
                self.look_further()
                self.looked = time.monotonic()
            time.sleep(min(SLOWEST, max(PACE, SPARED * (time.thread_time() - spent))))

    @property
    def told(self) -> dict[str, Any]:
        """What is seen of it now, beside how long ago that was."""
        return {"sign": self.what, "compilers": self.compilers, "stopped": self.stopped}

    def sign(self, what: str) -> None:
        self.last, self.what = time.monotonic(), what
        self.grown.clear()

    def heard(self, lines: list[str]) -> None:
        """What was said before, but for its time, is no sign: a watchdog repeats itself for ever."""
        for line in lines[-20:]:
            text = PASSING.sub("", line)
            if text not in self.said:
                self.sign("the log")
            self.said.pop(text, None)
            self.said[text] = None
        while len(self.said) > SAID:
            del self.said[next(iter(self.said))]

    def look(self) -> None:
        living = self.members.now()
        self.pids |= living.keys()
        self.names |= {one.name for one in living.values()}
        self._grows("read {} MiB", {pid: bytes_read(pid) for pid in living})
        self._grows("took {} MiB of memory", {pid: one.rss for pid, one in living.items()})
        self.compilers = [(title(pid) or one.name)[:SHOWN] for pid, one in living.items() if compiles(one)][:SHOWN]
        self.stopped = [f"{title(pid) or one.name} (pid {pid})" for pid, one in living.items() if one.state in "Tt"]
        if self.compilers:
            self.sign("compilers at work")
        for one in living.values():
            self._note(one, living.get(one.ppid))

    def look_further(self) -> None:
        """What costs more: only where nothing else shows a sign."""
        places = caches(self.members.ours)
        now = {place: newest(place) for place in places}
        before, self.before["caches"] = self.before.get("caches", now), now
        if any(before.get(place, stamp) != stamp for place, stamp in now.items()):
            self.sign("files of compilers' caches change")
        self._grows("took {} MiB of GPU memory", gpu_memory(self.pids))

    def lost(self) -> dict[str, Any] | None:
        """A process that an engine had given its title and that is gone, {title, pid, status: as of wait(2)}."""
        for pid, (one, words) in list(self.engines.items()):
            now = member(str(pid))
            if now is None or not now.lives(one.ticks):
                return {"title": words, "pid": pid, "status": status(pid) if now and now.ticks == one.ticks else None}
            if now.name != one.name:  # it was a fork, on its way to become something else
                self.engines.pop(pid, None)
        return None

    def _note(self, one: Member, parent: Member | None) -> None:
        """A fork has its parent's title, until it becomes something else or ends, which is no loss.

        One that has ended before it was seen to live still has its title, until its parent asks for it.
        """
        forked = parent is not None and parent.name == one.name
        if one.name.startswith(TITLES) and not forked and one.pid not in self.engines:
            self.engines[one.pid] = (one, title(one.pid) or one.name)

    def _grows(self, what: str, now: dict[Any, int]) -> None:
        before, self.before[what] = self.before.get(what, now), now
        more = self.grown.get(what, 0) + sum(max(0, size - before.get(key, 0)) for key, size in now.items())
        self.grown[what] = more
        if more >= ENOUGH:
            self.sign(what.format(more >> 20))


def compiles(one: Member) -> bool:
    return one.state not in "ZX" and (one.name in COMPILERS or one.name.startswith("x86_64-linux-gn"))


def bytes_read(pid: int) -> int:
    """By read(2) and from disks (proc_pid_io(5)), also by children that have ended; 0 where we must not know."""
    try:
        with open(f"/proc/{pid}/io", "rb") as file:
            fields = dict(line.split(b": ") for line in file.read().splitlines())
        return int(fields[b"rchar"]) + int(fields[b"read_bytes"])
    except (OSError, ValueError, KeyError):
        return 0


def status(pid: int) -> int | None:
    """How a zombie ended, as wait(2) puts it; None where we must not know, or nobody does any more."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b") ")[2].split()[49]) or None
    except (OSError, ValueError, IndexError):
        return None


def caches(pids: set[int]) -> list[str]:
    """The folders of CACHES as the environment of the newest process says it."""
    said: dict[str, str] = dict(os.environ)
    for pid in sorted(pids):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                words = [os.fsdecode(word) for word in file.read().split(b"\0")]
        except OSError:
            continue
        said.update(word.partition("=")[::2] for word in words if "=" in word)
    both = ((said_by(variable, below, said), usual(place, said)) for variable, below, place in CACHES)
    return [folder for pair in both for folder in pair if folder]


def newest(folder: str) -> int:
    """When something changed in a folder last, in ns; as far as DEEP and MANY go."""
    stamp, left, level = 0, MANY, [folder]
    for _ in range(DEEP):
        below: list[str] = []
        for place in level:
            try:
                with os.scandir(place) as entries:
                    for entry in entries:
                        stamp = max(stamp, entry.stat(follow_symlinks=False).st_mtime_ns)
                        left -= 1
                        if left < 0:
                            return stamp
                        if entry.is_dir(follow_symlinks=False):
                            below.append(entry.path)
            except OSError:
                continue
        level = below
    return stamp


def gpu_memory(pids: set[int]) -> dict[Any, int]:
    """Bytes that these processes hold on all GPUs; {} where the driver does not tell."""
    if not shutil.which(HOLDERS[0]):
        return {}
    try:
        said = subprocess.run(HOLDERS, stdin=subprocess.DEVNULL, capture_output=True, timeout=20, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return {}
    rows = (row.split(b",") for row in said.splitlines() if row.count(b",") == 1)
    return {"all": sum(int(mib) << 20 for pid, mib in rows if mib.strip().isdigit() and int(pid) in pids)}
