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
from deploy.remote import Remote

YOUNG = 60.0  # seconds in which somebody may have made it, and not have opened it yet


@dataclass(frozen=True)
class Family:
    """How files of one kind are called: `pid` of who made it, if the name has it; `engine`: only a server makes it."""

    pattern: re.Pattern[str]
    engine: bool = False


# Names as SGLang 0.5.8 to 0.5.23 (utils/stale_shm_cleanup.py, managers/load_snapshot.py, mem_cache/storage/mmap), torch
# (c10/core/StorageImpl, reductions.py), Python's multiprocessing, loky, libomp, NCCL and CUDA give them.
FAMILIES = (
    Family(re.compile(r"sgl_shm_.+_(?P<pid>\d+)_[0-9a-f]+"), engine=True),
    Family(re.compile(r"multi_tokenizer_args_(?P<pid>\d+)"), engine=True),
    Family(re.compile(r"sglang_loads_.+\.shm"), engine=True),
    Family(re.compile(r"sglang_host_pool_[0-9a-f]+\.mmap"), engine=True),
    Family(re.compile(r"torch_(?P<pid>\d+)_\d+_\d+")),
    Family(re.compile(r"sem\.loky-(?P<pid>\d+)-.+")),
    Family(re.compile(r"__KMP_REGISTERED_LIB_(?P<pid>\d+)_\d+")),
    Family(re.compile(r"psm_[0-9a-f]+|sem\.mp-.+|nccl-.+|cuda\.shm\..+")),
)


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


def of(pids: Iterable[int], found: Leftovers) -> Belongings:
    """What these processes use, or have made."""
    wanted = set(pids)
    used = [item for item in found.files if wanted.intersection(item.users)]
    made = frozenset(one.number for one in found.segments if one.creator in wanted)
    return Belongings(frozenset(item.key for item in used), made)


def remembered(found: Launched) -> Belongings:
    """What the runs' processes used when the runs became ready."""
    return Belongings(found.files, found.segments)


def remember(remote: Remote) -> None:
    """Write down, in the run's folder, what its processes use; no reason for a run to fail where that cannot be."""
    try:
        remote.change_python(host.source("remember"), remote.place.folder)
    except RemoteFailed as error:
        remote.say(f"which shared memory it uses is not written down: {error.what}")


def judge(found: Leftovers, left: Belongings = Belongings()) -> Iterator[Fate]:
    """What has no user any more, and is of an engine's or was used by those that left it."""
    for item in found.files:
        if item.users:
            continue
        name = _name(item)
        family = next((one for one in FAMILIES if one.pattern.fullmatch(name)), None)
        theirs = item.key in left.keys
        if theirs or (family and item.kind == "file"):
            yield _fate(item, family, found, theirs=theirs)


def _fate(item: Item, family: Family | None, found: Leftovers, *, theirs: bool) -> Fate:
    named = family.pattern.fullmatch(_name(item)) if family else None
    pid = int(named.groupdict().get("pid") or 0) if named else 0
    rules = (  # the first one that holds
        (item.uid != found.uid, False, f"it is of user id {item.uid}"),
        (item.uid in found.unread, False, f"{found.unread.count(item.uid)} processes of its user may not be read"),
        (theirs, True, "a process that was ended used it"),
        (pid in found.pids, False, f"pid {pid} in its name lives"),
        (item.age < YOUNG, False, "it is younger than a minute"),
        (not found.sees_all, False, "processes that cannot be seen from within a container may use it"),
        (pid > 0, True, f"pid {pid} in its name is gone"),
        (family is not None and family.engine, True, "nobody has it open"),
        (True, False, "nobody has it open, but whose it was cannot be told"),
    )
    return next(Fate(item, dead, why) for holds, dead, why in rules if holds)


def abandoned(found: Leftovers, left: Belongings) -> list[Segment]:
    """System V's segments that they made, and that nobody has attached."""
    return [one for one in found.segments if one.number in left.segments and not one.attached and one.uid == found.uid]


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
    return f"{len(told['removed'])} pieces of shared memory removed, {told['bytes'] >> 20} MiB"


def _name(item: Item) -> str:
    return item.path.rpartition("/")[2]
