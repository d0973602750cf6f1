"""How much memory a host has left: free, swap, huge pages, /dev/shm, and what control groups allow; all in bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deploy.facts import Fact, told_by


@dataclass(frozen=True)
class HugePages:
    """The pages of one size that were set aside: nobody else has their memory, used or not."""

    size: int
    total: int
    free: int


@dataclass(frozen=True)
class Group:
    """A control group above us that limits memory: Linux kills within it, however much the host has."""

    group: str
    limit: int
    used: int
    spare: int  # of `used`: files that are given up before anybody is killed

    @property
    def free(self) -> int:
        return max(0, self.limit - self.used + self.spare)


@dataclass(frozen=True)
class Shared:
    """/dev/shm; None is unknown, and then `error` says why."""

    total: int | None = None
    free: int | None = None
    free_inodes: int | None = None
    writable: bool | None = None
    mounted: bool | None = None  # False: a folder of another filesystem, so on a disk
    error: str = ""


@dataclass(frozen=True)
class Memory:
    """One look."""

    total: int | None
    available: int | None  # the kernel's own estimate of what can be used without swapping; None before Linux 3.14
    swap_total: int | None
    swap_free: int | None
    hugepages: tuple[HugePages, ...]
    transparent: str | None  # always, madvise, never; None: this kernel has none
    groups: tuple[Group, ...]
    shared: Shared

    @property
    def usable(self) -> int | None:
        """What a new process may use: no more than the host has, nor than its control groups allow."""
        if self.available is None:
            return None
        return min([self.available, *(group.free for group in self.groups)])

    @property
    def tightest(self) -> Group | None:
        """The control group that leaves less than the host has."""
        least = min(self.groups, key=lambda group: group.free, default=None)
        return least if least and self.available is not None and least.free < self.available else None

    @property
    def set_aside(self) -> int:
        """Bytes in huge pages, which are in `total` and never in `available`."""
        return sum(pages.size * pages.total for pages in self.hugepages)


def parse(told: Mapping[str, Any]) -> Memory:
    """From what `deploy.host.memory` says."""
    memory = told["memory"]
    return Memory(
        total=memory.get("MemTotal"),
        available=memory.get("MemAvailable"),
        swap_total=memory.get("SwapTotal"),
        swap_free=memory.get("SwapFree"),
        hugepages=tuple(HugePages(**pages) for pages in told["hugepages"]),
        transparent=told["transparent"],
        groups=tuple(Group(**group) for group in told["groups"]),
        shared=Shared(**told["shared"]),
    )


FACT: Fact[Memory] = told_by("memory", parse)
