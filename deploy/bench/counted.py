"""What a node's server has counted itself, by whomever it was asked: read from its metrics, once it is at rest."""

from __future__ import annotations

import time
from collections.abc import Callable

from deploy.engines import Totals
from deploy.errors import Unreachable
from deploy.plan import Node
from deploy.remote import Remote

TIMEOUT = 5.0  # seconds
SETTLED = 3.0  # seconds in which a server must have counted a request that it has answered
RESTED = 1.0  # seconds without another count, after which nothing that was asked before is still to be counted


def now(node: Node, remote: Remote) -> Totals | None:
    """Whatever is wrong with them is no reason to fail: what cannot be told then is not told."""
    if node.engine.METRICS is None:
        return None
    try:
        reply = remote.http("GET", node.port, node.engine.METRICS, timeout=TIMEOUT, key=remote.place.key)
    except (OSError, Unreachable):
        return None
    return node.engine.totals(reply.body.decode(errors="replace")) if reply.status == 200 else None


def rested(node: Node, remote: Remote) -> Totals | None:
    """Once it counts no more: others of the tool have asked before, and that is none of a measurement."""
    began = since = time.monotonic()
    last = now(node, remote)
    while last is not None and time.monotonic() - since < RESTED and time.monotonic() - began < SETTLED:
        remote.pause(0.1)
        before, last = last, now(node, remote)
        since = since if last == before else time.monotonic()
    return last


def settled(
    node: Node, remote: Remote, enough: Callable[[Totals], bool], patience: float = SETTLED
) -> tuple[Totals | None, bool]:
    """(its counters, whether they are `enough`), at most so many seconds later: an answer may arrive before its last
    step is counted, and a busy server may not tell at once what it has told before.
    """
    deadline = time.monotonic() + patience
    while True:
        told = now(node, remote)
        done = told is not None and enough(told)
        if done or time.monotonic() >= deadline:
            return told, done
        remote.pause(0.05)
