"""Which processes a host has, beside what a deployment's runs wrote down there of theirs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deploy import host
from deploy.facts import Asks, processes
from deploy.facts.leftovers import Key
from deploy.facts.processes import Processes


@dataclass(frozen=True)
class Launch:
    """What launch.sh wrote about itself when it began a run; it may have ended long ago."""

    run: str  # the run's folder
    pid: int
    start_ticks: int
    boot_id: str


@dataclass(frozen=True)
class Launched:
    """One look."""

    living: Processes
    launches: tuple[Launch, ...]
    files: frozenset[Key] = frozenset()  # shared memory that the runs used when they became ready
    segments: frozenset[int] = frozenset()  # System V's


def parse(answer: Mapping[str, Any]) -> Launched:
    """From what `deploy.host.launched` prints."""
    told = {name: value for name, value in answer.items() if name not in ("launchers", "shared")}
    files = {(device, inode, path) for one in answer["shared"] for device, inode, path in one["files"]}
    segments = {number for one in answer["shared"] for number in one["segments"]}
    launches = (Launch(run, int(pid), int(ticks), boot) for run, pid, ticks, boot in answer["launchers"])
    return Launched(processes.parse(told), tuple(launches), frozenset(files), frozenset(segments))


def read(remote: Asks, runs: str) -> Launched:
    """Look once, at all processes and at the runs in the folder `runs`."""
    return parse(remote.python(host.source("launched"), runs))
