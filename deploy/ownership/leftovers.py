"""What dead processes left in shared memory: whose each piece was, and which may be removed; none that has a user."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

from deploy import host
from deploy.errors import RemoteFailed
from deploy.facts import leftovers
from deploy.facts.launched import Launched
from deploy.facts.leftovers import Item, Key, Leftovers, Segment
from deploy.facts.processes import Process
from deploy.remote import Remote

YOUNG = 60.0  # seconds in which somebody may have made it, and not have opened it yet
SECOND = 1.0  # by which a segment seems older: the kernel tells its time in whole ones

# Names as SGLang 0.5.8 to 0.5.23 (utils/stale_shm_cleanup.py, managers/load_snapshot.py, mem_cache/storage/mmap), torch
# (c10/core/StorageImpl, reductions.py), vLLM 0.33 (kv_offload, ec_transfer), Python's multiprocessing, loky, libomp,
# NCCL and CUDA give them. A file that is called otherwise may be somebody's data: weights are kept there as well.
PATTERNS = (
    r"sgl_shm_.+_(?P<pid>\d+)_[0-9a-f]+",
    r"multi_tokenizer_args_(?P<pid>\d+)",
    r"torch_(?P<pid>\d+)_[0-9a-f]+_\d+",  # and deploy/host/swap.py, whose pieces a server opens as it does torch's
    r"sem\.loky-(?P<pid>\d+)-.+",
    r"__KMP_REGISTERED_LIB_(?P<pid>\d+)_\d+",
    r"sglang_loads_.+\.shm",
    r"sglang_host_pool_.+\.mmap",
    r"vllm_(offload|ec)_.+\.mmap",
    r"psm_[0-9a-f]+|sem\.mp-.+|nccl-.+|cuda\.shm\..+",
)
KNOWN = tuple(map(re.compile, PATTERNS))  # `pid` is who made it


@dataclass(frozen=True)
class Belongings:
    """What the processes used that are to be ended; who looks later knows by it what they left."""

    keys: frozenset[Key] = frozenset()
    segments: frozenset[int] = frozenset()

    def __or__(self, other: Belongings) -> Belongings:
        return Belongings(self.keys | other.keys, self.segments | other.segments)


@dataclass(frozen=True)
class Fate:
    """A piece without a user: `dead` is its owner, or it is kept; and why."""

    item: Item
    dead: bool
    why: str


def of(processes: Iterable[Process], found: Leftovers) -> Belongings:
    """What these processes use, or have made: a segment's maker may be an earlier one that had the pid."""
    ages = {process.pid: process.age for process in processes}
    used = [item for item in found.files if not ages.keys().isdisjoint(item.users)]
    made = [one for one in found.segments if one.creator in ages and one.age <= ages[one.creator] + SECOND]
    return Belongings(frozenset(item.key for item in used), frozenset(one.number for one in made))


def remembered(found: Launched) -> Belongings:
    """What the runs' processes used when the runs became ready."""
    return Belongings(found.files, found.segments)


def remember(remote: Remote) -> None:
    """Write down, in the folder of the run that launched them, what its processes use; no reason for a run to fail
    where that cannot be.
    """
    try:
        remote.change_python(host.source("remember"), remote.place.server)
    except RemoteFailed as error:
        remote.say(f"which shared memory it uses is not written down: {error.what}")


def judge(found: Leftovers, left: Belongings = Belongings()) -> Iterator[Fate]:
    """What has no user any more: the files that are called as such pieces are, and the sockets of those that left
    them. No other file, whoever used it: a server maps weights as well that lie in /dev/shm to be read fast.
    """
    for item in found.files:
        if item.users:
            continue
        name, theirs = _name(item), item.key in left.keys
        named = next(filter(None, (pattern.fullmatch(name) for pattern in KNOWN)), None)
        if named if item.kind == "file" else theirs:
            yield _fate(item, int(named.groupdict().get("pid") or 0) if named else 0, found, theirs=theirs)


def _fate(item: Item, pid: int, found: Leftovers, *, theirs: bool) -> Fate:
    rules = (  # the first one that holds
        (item.uid != found.uid, False, f"it is of user id {item.uid}"),
        (item.uid in found.unread, False, f"{found.unread.count(item.uid)} processes of its user may not be read"),
        (pid in found.pids, False, f"pid {pid} in its name lives"),
        (theirs, True, "a process that was ended used it"),
        (item.age < YOUNG, False, "it is younger than a minute"),
        (not found.sees_all, False, "processes that cannot be seen from within a container may use it"),
        (pid > 0, True, f"pid {pid} in its name is gone"),
        (True, False, "nobody has it open, but whose it was cannot be told"),
    )
    return next(Fate(item, dead, why) for holds, dead, why in rules if holds)


def abandoned(found: Leftovers, left: Belongings) -> list[Segment]:
    """System V's segments that they made, who are gone, and that nobody has attached."""
    unused = [one for one in found.segments if not one.attached and one.creator not in found.pids]
    return [one for one in unused if one.number in left.segments and one.uid == found.uid]


def sweep(remote: Remote, left: Belongings = Belongings()) -> str:
    """Remove what dead processes left, under the host's lock; in words what that was, and what was kept."""
    found = leftovers.read(remote, *sorted({path for *_, path in left.keys}))
    fates, segments = list(judge(found, left)), abandoned(found, left)
    dead = [fate.item for fate in fates if fate.dead]
    if not dead and not segments:
        return ""
    told = remote.change_python(
        host.source("sweep"), json.dumps([asdict(item) for item in dead]), json.dumps([one.number for one in segments])
    )
    for path, why in told["kept"].items():
        remote.say(f"{path} of a dead process is kept: {why}")
    return f"{pieces(len(told['removed']))} of shared memory removed, {told['bytes'] >> 20} MiB"


def pieces(count: int) -> str:
    """In words."""
    return f"{count} piece{'s' * (count != 1)}"


def _name(item: Item) -> str:
    return item.path.rpartition("/")[2]
