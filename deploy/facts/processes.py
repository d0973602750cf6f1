"""Which processes run on a host, whose they are, and which run of ours they belong to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deploy import host
from deploy.facts import Asks, Fact, told_by
from deploy.text import scrub

# How Docker, containerd, CRI-O and Podman name a container's control group: by its id, 64 hex digits.
CONTAINER = re.compile(r"(?:^|[/:-])([0-9a-f]{64})(?:\.scope)?(?:/|$)")
SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


@dataclass(frozen=True)
class Process:
    """One process; (pid, start_ticks) is this very one, until the host boots again."""

    pid: int
    ppid: int
    pgrp: int
    session: int
    start_ticks: int  # since boot
    age: float  # seconds
    state: str  # the letter of /proc/PID/stat
    threads: int
    uid: int
    user: str
    name: str  # at most 15 bytes: the kernel cuts it
    cmdline: tuple[str, ...]  # the first 2 KiB of it
    cgroup: str
    run: str | None  # the run's folder, DEPLOY_SERVER of its environment; "" it has none; None: may not be read
    wiped: bool = False  # its environment has no variable at all: setproctitle writes a process's title over them
    rss: int | None = None  # bytes of the host's memory that it has
    inside: int | None = None  # its pid in a pid namespace of its own below ours (a container's)
    writes: tuple[str, ...] = ()  # the files that its stdout and stderr lead to, as far as that may be seen

    @property
    def zombie(self) -> bool:
        """Dead, and only its parent has not noticed. One whose other threads live on still holds what they hold."""
        return self.state in "ZX" and self.threads <= 1

    @property
    def container(self) -> str:
        """The first 12 digits of its container's id, as `docker ps` shows it; "" where its control group names none."""
        found = CONTAINER.search(self.cgroup)
        return found[1][:12] if found else ""

    def __str__(self) -> str:
        words = " ".join(scrub.words(self.cmdline)) or f"[{self.name}]"
        size = f", {_size(self.rss)}" if self.rss is not None else ""
        where = f", in container {self.container}" if self.container else ""
        where += f", pid {self.inside} in its own namespace" if self.inside else ""
        return f"pid {self.pid} of {self.user}, {self.age:.0f} s old{size}{where}: {words[:200]}"


@dataclass(frozen=True)
class Processes:
    """All processes of a host at one moment, the kernel's own left out."""

    boot_id: str
    all: tuple[Process, ...]
    asked_by: int  # pid of the program that looked, itself among them

    def get(self, pid: int, start_ticks: int) -> Process | None:
        """That very process if it lives; a zombie does not."""
        found = (p for p in self.all if p.pid == pid and p.start_ticks == start_ticks and not p.zombie)
        return next(found, None)

    def ancestors(self, pid: int) -> frozenset[int]:
        """The pids from `pid` up to the first process; those of `asked_by` are our own connection."""
        parents = {p.pid: p.ppid for p in self.all}
        line: set[int] = set()
        while pid in parents and pid not in line:
            line.add(pid)
            pid = parents[pid]
        return frozenset(line)


def _size(count: int) -> str:
    unit, name = next((one for one in SIZES if count >= one[0]), (1, "bytes"))
    return f"{count / unit:.3g} {name}"


def parse(answer: Mapping[str, Any]) -> Processes:
    """From what `deploy.host.processes` prints."""
    uptime, ticks = answer["uptime"], answer["ticks_per_second"]
    found = (
        Process(
            **{
                **told,
                "cmdline": tuple(told["cmdline"]),
                "writes": tuple(told.get("writes", ())),
                "age": max(0.0, uptime - told["start_ticks"] / ticks),
            }
        )
        for told in answer["processes"]
    )
    return Processes(answer["boot_id"], tuple(found), answer["asked_by"])


FACT: Fact[Processes] = told_by("processes", parse)


def read(remote: Asks) -> Processes:
    """Look once."""
    return parse(remote.python(host.source("processes")))
