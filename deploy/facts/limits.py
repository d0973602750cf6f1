"""What a program may use that is started on a host without a terminal, and whether it may outlive our connection."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deploy.facts import Fact, told_by


@dataclass(frozen=True)
class Limit:
    """Of one kind (setrlimit(2)); a program may raise its own up to `hard`. math.inf: there is none."""

    soft: float
    hard: float


@dataclass(frozen=True)
class Limits:
    """As the shell of a connection of ours has them, and so what it starts."""

    nofile: Limit  # open files
    memlock: Limit  # bytes that may not be swapped: what RDMA and page-locked buffers need
    nproc: Limit  # processes and threads of this user; root is not held to it
    user: str
    scope: str  # the systemd scope of our login; "" it is in none, so nothing ends with it
    killed: bool | None  # whether what is left in it is killed when the login ends; None: unknown, `error` says why
    lingers: bool | None  # whether the user's own services live on without a login; None: no systemd
    error: str = ""


def parse(told: Mapping[str, Any]) -> Limits:
    """From what `deploy.host.limits` says."""
    limits = {
        name: Limit(*(math.inf if limit is None else float(limit) for limit in pair))
        for name, pair in told["limits"].items()
    }
    return Limits(
        **limits,
        user=told["user"],
        scope=told["scope"],
        killed=told["killed"],
        lingers=told["lingers"],
        error=told["error"],
    )


FACT: Fact[Limits] = told_by("limits", parse)
