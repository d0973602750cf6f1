"""Hosts that shall serve together, or alike, beside each other: who differs from most, and in what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from deploy.checks import Case
from deploy.errors import RemoteFailed
from deploy.facts import gpus, interpreter, network, rdma, system
from deploy.findings import Finding, Verdict

CLOCKS = 2.0  # seconds that clocks may be apart, beyond what the looks leave open


@dataclass(frozen=True)
class Trait:
    """Something that is to be the same on all hosts: what it is of one, None where that is not known."""

    name: str
    of: Callable[[Case], str | None]
    together: Verdict  # within one server over several hosts
    remedy: str


def across(cases: Sequence[Case]) -> Iterator[tuple[str, Finding]]:
    """Each trait by itself; a host of which it is not known is left out, and told by the check of its own topic."""
    told = [line for trait in TRAITS for line in _differing(trait, cases)]
    told += _clocks(cases)
    yield from told
    if not told:
        names = ", ".join(trait.name for trait in TRAITS if sum(_of(trait, case) is not None for case in cases) > 1)
        yield cases[0].host.name, Finding("uniformity", "PASS", f"{len(cases)} hosts are alike: {names}, clocks")


def _differing(trait: Trait, cases: Sequence[Case]) -> Iterator[tuple[str, Finding]]:
    known = {case.host.name: said for case in cases if (said := _of(trait, case)) is not None}
    counted = Counter(known.values())
    if len(counted) < 2:
        return
    (usual, most), (_, second) = counted.most_common(2)
    evidence = "\n".join(f"{said}: {', '.join(_having(said, known))}" for said, _ in counted.most_common())
    verdict: Verdict = trait.together if _one_server(cases) else "WARN"
    if most == second:
        what = f"the {trait.name} differs, and no more hosts have one than another"
        yield cases[0].host.name, Finding("uniformity", verdict, what, evidence, trait.remedy)
        return
    for name, said in known.items():
        if said != usual:
            what = f"its {trait.name} differs: {said}, on {most} others {usual}"
            yield name, Finding("uniformity", verdict, what, evidence, trait.remedy)


def _having(said: str, known: dict[str, str]) -> list[str]:
    return [name for name, own in known.items() if own == said]


def _one_server(cases: Sequence[Case]) -> bool:
    return any(case.node is not None and case.node.profile.nodes > 1 for case in cases)


def _of(trait: Trait, case: Case) -> str | None:
    try:
        return trait.of(case)
    except RemoteFailed:  # that fact's own check tells it
        return None


def _clocks(cases: Sequence[Case]) -> Iterator[tuple[str, Finding]]:
    """Against the one in the middle: ours may be the wrong one."""
    known = [(case, case.facts.offset) for case in cases if case.facts.offset is not None]
    middle = sorted(offset for _, offset in known)[len(known) // 2] if known else 0.0
    for case, offset in known:
        apart, around = offset - middle, (case.facts.round_trip or 0.0) / 2
        if abs(apart) - around > CLOCKS:
            what = f"its clock is {abs(apart):.1f} s {'ahead of' if apart > 0 else 'behind'} that of most hosts"
            remedy = "let chrony or ntpd set it: logs of several ranks cannot be read side by side"
            yield case.host.name, Finding("uniformity", "WARN", what, f"give or take {around:.1f} s", remedy)


# ---- the traits ------------------------------------------------------------------------------------------------------


def _driver(case: Case) -> str | None:
    drivers = sorted({gpu.driver for gpu in case.facts[gpus.FACT].all or () if gpu.driver})
    return ", ".join(drivers) or None


def _gpus(case: Case) -> str | None:
    found = case.facts[gpus.FACT]
    if found.all is None:
        return None
    return ", ".join(f"{count} x {name}" for name, count in sorted(Counter(gpu.name for gpu in found.all).items()))


def _engine(case: Case) -> str | None:
    versions = [one.installed for one in case.facts[interpreter.FACT] if one.installed]
    return ", ".join(versions) or None


def _python(case: Case) -> str | None:
    versions = [one.version for one in case.facts[interpreter.FACT] if one.version]
    return ", ".join(versions) or None


def _interfaces(case: Case) -> str | None:
    """Names of what leads to other hosts: NCCL_SOCKET_IFNAME names one for all of them."""
    found = case.facts[network.FACT].interfaces or ()
    return ", ".join(sorted(one.name for one in found if one.outward and one.running)) or None


def _rdma(case: Case) -> str | None:
    """Names and kinds of links of what RDMA can use: NCCL_IB_HCA and NCCL_IB_GID_INDEX are the same for all of them."""
    found = case.facts[rdma.FACT]
    if found.devices is None:
        return None
    named = (
        f"{device.name} {'/'.join(sorted({port.layer or '?' for port in device.active}))}" for device in found.ready
    )
    return ", ".join(sorted(named)) or "none"


TRAITS = (
    Trait("driver", _driver, "WARN", "install the same driver on all of them"),
    Trait("set of GPUs", _gpus, "WARN", "look for one that is missing, or take hosts that are alike"),
    Trait("engine", _engine, "FAIL", "install the same version on all of them"),
    Trait("engine's Python", _python, "WARN", "install the same version on all of them"),
    Trait(
        "set of network interfaces",
        _interfaces,
        "WARN",
        "set nccl.SOCKET_IFNAME for each host, under `set` in inventory.yaml",
    ),
    Trait(
        "set of RDMA devices",
        _rdma,
        "WARN",
        "set nccl.IB_HCA for each host, under `set` in inventory.yaml, or mend the link",
    ),
    Trait(
        "libc", lambda case: case.facts[system.FACT].libc or None, "WARN", "take the same distribution on all of them"
    ),
    Trait("kernel", lambda case: case.facts[system.FACT].kernel, "WARN", "boot the same kernel on all of them"),
)
