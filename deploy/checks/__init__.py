"""What must be true before a load of minutes is worth starting: one topic a file, found by its file name.

A check is a module of this package with `check(case) -> Iterable[Finding]`. It judges facts, changes nothing, and never
stops at the first thing it dislikes: the user is told everything at once. What needs hosts side by side has
`across(cases)`, with the host's name beside each finding; a module may have both.

* PASS: looked, and it is right. `what` says what was seen.
* WARN: will probably work; does not stop the run.
* FAIL: would fail, or fail silently; the run stops before anything was touched, unless the check is waived by name.
* UNKNOWN: could not look (no tool, no right to read). Never told as PASS: what nobody saw is not fine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from deploy import registry
from deploy.errors import RemoteFailed
from deploy.findings import Finding, Verdict

if TYPE_CHECKING:
    from deploy.facts import Facts
    from deploy.inventory import Host
    from deploy.plan import Node
    from deploy.remote import Remote

SIDE_BY_SIDE = 3  # of the channels that one connection has

__all__ = ["Case", "Check", "Finding", "Verdict", "across", "run"]


@dataclass(frozen=True)
class Case:
    """One host as one look showed it, and what is to run there.

    Without a node, no profile was named: what depends on one is not judged. The remote is for what one look cannot
    tell: the draft, the installed engine's own answers.
    """

    host: Host
    facts: Facts
    node: Node | None
    remote: Remote


class Check(Protocol):
    """A module of this package."""

    def check(self, case: Case) -> Iterable[Finding]:
        """Judge, change nothing."""


class Across(Protocol):
    """A module of this package that judges hosts beside each other."""

    def across(self, cases: Sequence[Case]) -> Iterable[tuple[str, Finding]]:
        """What differs, by the name of the host that is the odd one out."""


def run(case: Case, wanted: Sequence[str] | None = None) -> Iterator[Finding]:
    """Every check; one that the host would not answer is UNKNOWN, and the others go on.

    `wanted` are their names, for who judges many hosts. With a node a few go side by side: some then ask for more.
    """
    names = having("check") if wanted is None else wanted
    if case.node is None:
        for name in names:
            yield from _findings(name, case)
        return
    with ThreadPoolExecutor(SIDE_BY_SIDE, thread_name_prefix="check") as pool:
        for found in pool.map(lambda name: _findings(name, case), names):
            yield from found


def across(cases: Sequence[Case]) -> Iterator[tuple[str, Finding]]:
    """What several hosts show beside each other; nothing for one alone."""
    for name in having("across") if len(cases) > 1 else ():
        module = cast("Across", registry.load(__name__, name, "check"))
        try:
            yield from list(module.across(cases))
        except RemoteFailed as error:
            yield cases[0].host.name, Finding(name, "UNKNOWN", error.what, error.evidence, error.remedy)


def having(function: str) -> list[str]:
    """The names of the modules that have `check`, or `across`."""
    return [name for name in registry.names(__name__) if hasattr(registry.load(__name__, name, "check"), function)]


def _findings(name: str, case: Case) -> list[Finding]:
    check = cast("Check", registry.load(__name__, name, "check"))
    case.remote.say(name)
    try:
        return list(check.check(case))
    except RemoteFailed as error:
        return [Finding(name, "UNKNOWN", error.what, error.evidence, error.remedy)]
