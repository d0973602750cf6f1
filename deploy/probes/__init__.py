"""Measurements that cost something, and so are made only when they are asked for by name: `deploy check --deep disk`.

A probe is a module of this package with `probe(cases) -> Iterable[tuple[str, Finding]]`: hosts as one look showed them,
and what is found, each with the name of its host. It is bounded in time, changes nothing that stays, and what it cannot
measure is UNKNOWN, with the reason. The first line of its docstring is its line in the help.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar, cast

from deploy import registry
from deploy.checks import Case
from deploy.errors import RemoteFailed
from deploy.findings import Finding, Verdict

T = TypeVar("T")
Told = Iterator[tuple[str, Finding]]


class Probe(Protocol):
    """A module of this package."""

    def probe(self, cases: Sequence[Case]) -> Iterable[tuple[str, Finding]]:
        """Measure; (host, what was found)."""


def names() -> list[str]:
    """The probes there are."""
    return registry.names(__name__)


def line(name: str) -> str:
    """What a probe measures, in a line."""
    return (registry.load(__name__, name, "probe").__doc__ or "").partition("\n")[0]


def run(wanted: Sequence[str], cases: Sequence[Case]) -> Told:
    """The probes of these names, one after the other, since they would disturb each other.

    ConfigError, before any is started, where there is none of a name.
    """
    for probe in [cast("Probe", registry.load(__name__, name, "probe")) for name in dict.fromkeys(wanted)]:
        yield from probe.probe(cases)


def finding(probe: str, verdict: Verdict, what: str, evidence: str = "", remedy: str = "") -> Finding:
    """A finding under the name by which the probe is asked for."""
    return Finding(probe, verdict, what, evidence, remedy)


def side_by_side(act: Callable[[Case], T], cases: Sequence[Case]) -> Iterator[tuple[Case, T | RemoteFailed]]:
    """Act on each host at the same time; what one failed with stands in its place."""

    def one(case: Case) -> T | RemoteFailed:
        try:
            return act(case)
        except RemoteFailed as error:
            return error

    with ThreadPoolExecutor(len(cases) or 1, thread_name_prefix="probe") as pool:
        yield from zip(cases, pool.map(one, cases), strict=True)


def unknown(probe: str, error: RemoteFailed) -> Finding:
    """What a host would not do."""
    return finding(probe, "UNKNOWN", error.what, error.evidence, error.remedy)


def amount(size: float) -> str:
    """Bytes as people say them, in powers of 1000: 595 GB, 1.2 GB, 310 MB."""
    for unit, value in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= value:
            return f"{size / value:.3g} {unit}" if size < 999.5 * value else f"{size / value:.0f} {unit}"
    return f"{size:.0f} bytes"
