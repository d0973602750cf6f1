"""Measurements that cost something, and so are made only when they are asked for by name: `deploy check --deep disk`.

A probe is a module of this package with `probe(cases) -> Iterable[tuple[str, Finding]]`: hosts as one look showed them,
and what is found, each with the name of its host. It is bounded in time, changes nothing that stays, and what it cannot
measure is UNKNOWN, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar, cast

from deploy import registry
from deploy.checks import Case
from deploy.errors import DeployError, RemoteFailed, Unreachable
from deploy.findings import Finding, Verdict

T = TypeVar("T")
Told = Iterator[tuple[str, Finding]]


class Probe(Protocol):
    """A module of this package."""

    def probe(self, cases: Sequence[Case]) -> Iterable[tuple[str, Finding]]:
        """Measure; (host, what was found)."""


def named(words: str) -> list[str]:
    """The probes that "disk,links" names, each once. ConfigError where there is none of a name."""
    wanted = list(dict.fromkeys(filter(None, map(str.strip, words.split(",")))))
    for name in wanted:
        _load(name)
    return wanted


def run(wanted: Sequence[str], cases: Sequence[Case]) -> Told:
    """The probes of these names, one after the other, since they would disturb each other."""
    for name in wanted:
        yield from _load(name).probe(cases)


def _load(name: str) -> Probe:
    return cast("Probe", registry.load(__name__, name, "probe"))


def profiled(probe: str, cases: Sequence[Case]) -> Told:
    """What is told of hosts for which no profile says what is to be measured."""
    for case in cases:
        if case.node is None:
            remedy = f"deploy check profile=NAME --deep {probe}"
            yield case.host.name, finding(probe, "UNKNOWN", "only a profile says what is to be measured", remedy=remedy)


def finding(probe: str, verdict: Verdict, what: str, evidence: str = "", remedy: str = "") -> Finding:
    """A finding under the probe's name, which is told apart from that of a check."""
    return Finding(f"deep-{probe}", verdict, what, evidence, remedy)


def side_by_side(act: Callable[[Case], T], cases: Sequence[Case]) -> Iterator[tuple[Case, T | DeployError]]:
    """Act on each host at the same time; what one failed with stands in its place, also where its connection broke."""

    def one(case: Case) -> T | DeployError:
        try:
            return act(case)
        except (RemoteFailed, Unreachable) as error:
            return error

    with ThreadPoolExecutor(len(cases) or 1, thread_name_prefix="probe") as pool:
        yield from zip(cases, pool.map(one, cases), strict=True)


def unknown(probe: str, error: DeployError) -> Finding:
    """What a host would not do."""
    return finding(probe, "UNKNOWN", error.what, error.evidence, error.remedy)


def amount(size: float) -> str:
    """Bytes as people say them, in powers of 1000: 595 GB, 1.2 GB, 310 MB."""
    for unit, value in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= value:
            return f"{size / value:.3g} {unit}" if size < 999.5 * value else f"{size / value:.0f} {unit}"
    return f"{size:.0f} bytes"
