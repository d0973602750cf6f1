"""What a host is: its system, its own Python, what it has of processors and memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deploy import host
from deploy.facts import Asks, Fact, told_by


@dataclass(frozen=True)
class System:
    """One host, as its own Python tells it."""

    system: str  # as "Debian GNU/Linux 12 (bookworm)"
    kernel: str
    machine: str  # as "x86_64"
    python: str  # of the `python3` that our programs run with
    user: str  # who we are there
    hostname: str
    cpus: int | None
    memory: int  # bytes
    libc: str = ""  # as "glibc 2.36"; "" where it is another one


def parse(answer: Mapping[str, Any]) -> System:
    """From what `deploy.host.system` prints."""
    return System(**answer)


FACT: Fact[System] = told_by("system", parse)


def read(remote: Asks) -> System:
    """Look once."""
    return parse(remote.python(host.source("system")))
