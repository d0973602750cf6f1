"""What must be true before a load of minutes is worth starting: one topic a file, found by its file name.

A check is a module of this package with `check(node, remote) -> Iterable[Finding]`. It reads facts, judges them,
changes nothing, and never stops at the first thing it dislikes: the user is told everything at once.

* PASS: looked, and it is right. `what` says what was seen.
* WARN: will probably work; does not stop the run.
* FAIL: would fail, or fail silently; the run stops before anything was touched, unless the check is waived by name.
* UNKNOWN: could not look (no tool, no right to read). Never told as PASS: what nobody saw is not fine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol, cast

from deploy import registry
from deploy.errors import RemoteFailed
from deploy.findings import Finding, Verdict

if TYPE_CHECKING:
    from deploy.plan import Node
    from deploy.remote import Remote

SIDE_BY_SIDE = 3  # of the channels that one connection has

__all__ = ["Check", "Finding", "Verdict", "run"]


class Check(Protocol):
    """A module of this package."""

    def check(self, node: Node, remote: Remote) -> Iterable[Finding]:
        """Look, judge, change nothing."""


def run(node: Node, remote: Remote) -> Iterator[Finding]:
    """Every check, a few side by side; one that the host would not answer is UNKNOWN, and the others go on."""
    with ThreadPoolExecutor(SIDE_BY_SIDE, thread_name_prefix="check") as pool:
        for found in pool.map(lambda name: _findings(name, node, remote), registry.names(__name__)):
            yield from found


def _findings(name: str, node: Node, remote: Remote) -> list[Finding]:
    check = cast("Check", registry.load(__name__, name, "check"))
    remote.say(name)
    try:
        return list(check.check(node, remote))
    except RemoteFailed as error:
        return [Finding(name, "UNKNOWN", error.what, error.evidence, error.remedy)]
