"""Which TCP ports a host listens on, and who does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from deploy import host
from deploy.facts import Asks, Fact, told_by


@dataclass(frozen=True)
class Listener:
    """One listening socket."""

    address: str  # "0.0.0.0" and "::" are all of the host's
    port: int
    uid: int  # whose socket it is; told even where the process is not
    pids: tuple[int, ...] | None  # who has it open; None: could not see (another user's, another namespace's)


def parse(answer: Iterable[Mapping[str, Any]]) -> tuple[Listener, ...]:
    """From what `deploy.host.sockets` prints."""
    return tuple(
        Listener(told["address"], told["port"], told["uid"], tuple(told["pids"]) if told["pids"] else None)
        for told in answer
    )


FACT: Fact[tuple[Listener, ...]] = told_by("sockets", parse)


def read(remote: Asks) -> tuple[Listener, ...]:
    """Look once."""
    return parse(remote.python(host.source("sockets")))


def on(port: int, listeners: Iterable[Listener]) -> tuple[Listener, ...]:
    """Those on `port`, whatever the address."""
    return tuple(listener for listener in listeners if listener.port == port)
