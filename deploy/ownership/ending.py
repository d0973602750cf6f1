"""Signals for processes of a host: to those very ones and to nobody who has their pid by now, and their end awaited."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from deploy import host
from deploy.facts.processes import Process, Processes
from deploy.remote import Remote


@dataclass(frozen=True)
class Ended:
    """What came of it, in pids: who got the signal, whom only another user may signal, who of those awaited lives."""

    sent: frozenset[int]
    refused: frozenset[int]
    left: frozenset[int]


def end(
    remote: Remote,
    signal: str,
    targets: Iterable[Process],
    awaited: Iterable[Process] = (),
    *,
    seconds: float = 0.0,
    groups: Iterable[int] = (),
) -> Ended:
    """Send `TERM` or `KILL`, under the host's lock; then wait up to `seconds` until none of `awaited` lives.

    `groups` are pids of targets whose whole process group gets the signal as well. Whoever cannot be signalled keeps
    nobody else from it. RemoteFailed where the host would not run the program, Locked where the lease lapsed.
    """
    told = remote.change_python(
        host.source("end"), signal, _pairs(targets), _pairs(awaited), str(seconds), json.dumps(sorted(groups)),
        timeout=seconds + 30,
    )  # fmt: skip
    return Ended(*(frozenset(map(int, told[name])) for name in ("sent", "refused", "left")))


def whole_groups(targets: Iterable[Process], living: Processes) -> frozenset[int]:
    """The targets that lead a process group with nobody but targets in it."""
    wanted = {process.pid for process in targets}
    mixed = {process.pgrp for process in living.all if process.pid not in wanted}
    return frozenset(process.pid for process in targets if process.pid == process.pgrp and process.pid not in mixed)


def _pairs(processes: Iterable[Process]) -> str:
    return json.dumps([[process.pid, process.start_ticks] for process in processes])
