"""How many bytes a second go over TCP between each two hosts, both ways, on the interfaces that NCCL is to use."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from deploy import host
from deploy.checks import Case
from deploy.checks._nccl_network import matching
from deploy.errors import DeployError, RemoteFailed
from deploy.facts import network
from deploy.facts.network import Interface
from deploy.findings import Finding
from deploy.probes import Told, amount, finding
from deploy.transport import Process

SECONDS = 2  # of each measurement
STREAMS = 4  # connections: one alone does not fill 100 Gbit/s
PATIENCE = 30.0  # seconds for each measurement in all
PAIRWISE = 8  # hosts; more of them are measured in a ring
ENOUGH = 0.5  # of the slower interface's speed
OPEN = "let the hosts connect to each other on every port: the rendezvous, NCCL and Gloo take any"


@dataclass(frozen=True)
class End:
    """One host: the address that others connect to, and how fast its interface is in Mbit/s (None: not told)."""

    case: Case
    address: str
    interface: str = ""
    speed: int | None = None

    @property
    def name(self) -> str:
        return self.case.host.name


@dataclass(frozen=True)
class Measured:
    """One direction."""

    sender: End
    receiver: End
    rate: float = 0.0  # bytes a second
    error: str = ""  # why there is no connection
    unknown: str = ""  # why it could not be tried


def probe(cases: Sequence[Case]) -> Told:
    """Two hosts at a time talk; none of them talks to two at once."""
    if len(cases) < 2:
        what, remedy = "there is no other host to measure with", "name two or more: --hosts 'gpu[1-2]'"
        yield from ((case.host.name, finding("links", "UNKNOWN", what, remedy=remedy)) for case in cases)
        return
    found: list[Measured] = []
    ends = [end(case) for case in cases]
    for pairs in rounds(ends):
        with ThreadPoolExecutor(len(pairs), thread_name_prefix="probe") as pool:
            found += pool.map(lambda pair: measure(*pair), pairs)
    for one in ends:
        mine = [measured for measured in found if measured.sender is one]
        yield from ((one.name, told) for told in judged(mine))


def end(case: Case) -> End:
    """The fastest of the interfaces that NCCL_SOCKET_IFNAME names; without it the one with the inventory's address, or
    with the default route; where the host tells none, the inventory's address.
    """
    try:
        there = case.facts[network.FACT].interfaces or ()
    except RemoteFailed:
        there = ()
    usable = [one for one in there if one.running and one.reachable]
    said = dict(case.node.env).get("NCCL_SOCKET_IFNAME", "") if case.node else ""
    named = [one for one in usable if said and one.name in matching(said, [other.name for other in usable])]
    own = [one for one in there if case.host.address in _plain(one.addresses or ())]
    if not named and own:
        return End(case, case.host.address, own[0].name, own[0].speed)
    chosen = sorted(named or [one for one in usable if one.default], key=lambda one: -(one.speed or 0))
    if not chosen or (not named and _numeric(case.host.address)):
        return End(case, case.host.address)
    return End(case, _first(chosen[0]), chosen[0].name, chosen[0].speed)


def _plain(addresses: Sequence[str]) -> list[str]:
    return [address.partition("/")[0] for address in addresses]


def _first(interface: Interface) -> str:
    """IPv4 before IPv6, as NCCL has it."""
    return min(_plain(interface.reachable), key=lambda address: ":" in address)


def _numeric(address: str) -> bool:
    try:
        ip_address(address)
    except ValueError:
        return False
    return True


def rounds(ends: Sequence[End]) -> Iterator[list[tuple[End, End]]]:
    """(sender, receiver) that may talk at the same time; of many hosts, each talks to the next alone."""
    if len(ends) > PAIRWISE:
        ring = list(zip(ends, [*ends[1:], ends[0]], strict=True))
        halves = [ring[::2], ring[1::2]] if len(ring) % 2 == 0 else [ring[:-1:2], ring[1::2], ring[-1:]]
    else:
        halves = list(_tournament(ends))
    for half in halves:
        yield half
        yield [(receiver, sender) for sender, receiver in half]


def _tournament(ends: Sequence[End]) -> Iterator[list[tuple[End, End]]]:
    """Each with each, everybody once a round: one stays, the others move on by one place."""
    places: list[End | None] = [*ends, *([None] if len(ends) % 2 else [])]
    for _ in range(len(places) - 1):
        half = len(places) // 2
        yield [(a, b) for a, b in zip(places[:half], reversed(places[half:]), strict=True) if a and b]
        places[1:] = [places[-1], *places[1:-1]]


def measure(sender: End, receiver: End) -> Measured:
    """One direction, once. Never raises for what hosts may do."""
    remote, source = receiver.case.remote, host.source("throughput")
    remote.say(f"receiving from {sender.name}")
    try:
        listening = ("receive", receiver.address, str(PATIENCE - 5))
        process = remote.spawn(*remote.interpreter, source, *listening, deadline=PATIENCE)
        try:
            return _sent(sender, receiver, _documents(process))
        except StopIteration:
            last = process.read_stderr().decode(errors="replace").strip().rpartition("\n")[2]
            return Measured(sender, receiver, unknown=f"{receiver.name} cannot listen there: {last}")
        finally:
            process.close()
    except DeployError as error:
        return Measured(sender, receiver, unknown=" ".join(filter(None, (error.what, error.evidence))))
    except (TimeoutError, ValueError, LookupError, TypeError) as error:
        return Measured(sender, receiver, unknown=f"our program on {receiver.name} does not answer: {error!r}")


def _sent(sender: End, receiver: End, told: Iterator[Mapping[str, Any]]) -> Measured:
    ready = next(told)
    own = sender.address if sender.interface else ""
    words = ("send", own, receiver.address, str(ready["port"]), str(ready["token"]), str(SECONDS), str(STREAMS))
    sent = sender.case.remote.python(host.source("throughput"), *words, timeout=PATIENCE)
    if sent["error"]:
        return Measured(sender, receiver, error=str(sent["error"]))
    got = next(told)
    if not got["bytes"] or not got["seconds"]:
        return Measured(sender, receiver, error="nothing arrived")
    return Measured(sender, receiver, got["bytes"] / got["seconds"])


def _documents(process: Process) -> Iterator[Mapping[str, Any]]:
    rest = b""
    while data := process.read(timeout=PATIENCE):
        *whole, rest = (rest + data).split(b"\n")
        yield from map(json.loads, whole)


def judged(found: Sequence[Measured]) -> Iterator[Finding]:
    """What one host reaches of the others."""
    told = []
    for one in found:
        way = f"{one.receiver.name} at {one.receiver.address}"
        if one.unknown:
            yield finding("links", "UNKNOWN", f"{way} could not be measured", one.unknown)
            continue
        if one.error:
            yield finding("links", "FAIL", f"no connection to {way}: {one.error}", _interfaces(one), OPEN)
            continue
        slower = min((end.speed for end in (one.sender, one.receiver) if end.speed), default=None)
        if slower and one.rate * 8 < ENOUGH * slower * 1e6:
            what = f"{amount(one.rate)}/s to {way}, over {amount(slower * 1e6 / 8)}/s interfaces"
            yield finding(
                "links", "WARN", what, _interfaces(one), "look at cables, MTU, duplex, and at what else is sent"
            )
        else:
            told.append(f"{amount(one.rate)}/s to {way}")
    if told:
        yield finding("links", "PASS", "; ".join(told))


def _interfaces(one: Measured) -> str:
    return "\n".join(
        f"{end.name}: {end.interface or 'the address of the inventory'}{f', {end.speed} Mbit/s' if end.speed else ''}"
        for end in (one.sender, one.receiver)
    )
