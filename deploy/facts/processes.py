"""Which processes run on a host, whose they are, and which run of ours they belong to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deploy import host
from deploy.facts import About, Asks, Fact, Program, Question


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

    @property
    def zombie(self) -> bool:
        """Dead, and only its parent has not noticed. One whose other threads live on still holds what they hold."""
        return self.state in "ZX" and self.threads <= 1

    def __str__(self) -> str:
        words = " ".join(self.cmdline) or f"[{self.name}]"
        return f"pid {self.pid} of {self.user}, {self.age:.0f} s old: {words[:200]}"


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


def parse(answer: Mapping[str, Any]) -> Processes:
    """From what `deploy.host.processes` prints."""
    uptime, ticks = answer["uptime"], answer["ticks_per_second"]
    found = (
        Process(**{**told, "cmdline": tuple(told["cmdline"]), "age": max(0.0, uptime - told["start_ticks"] / ticks)})
        for told in answer["processes"]
    )
    return Processes(answer["boot_id"], tuple(found), answer["asked_by"])


def _questions(_: About) -> dict[str, Question]:
    return {"table": Program("processes")}


FACT: Fact[Processes] = Fact("processes", _questions, lambda answers: parse(answers["table"].read()))


def read(remote: Asks) -> Processes:
    """Look once."""
    return parse(remote.python(host.source("processes")))
