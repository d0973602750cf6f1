"""Which ports the kernel gives to whoever connects or asks for any: a server's own had better not be among them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from deploy.facts import About, Answer, Command, Fact, Question

FOLDER = "/proc/sys/net/ipv4"


@dataclass(frozen=True)
class Ephemeral:
    """net.ipv4.ip_local_port_range, both ends in it, and ip_local_reserved_ports (ip-sysctl.rst of the kernel)."""

    first: int
    last: int
    reserved: tuple[range, ...]

    def gives(self, port: int) -> bool:
        """Whether somebody else's connection may have it by accident."""
        return self.first <= port <= self.last and not any(port in some for some in self.reserved)


def parse(answers: Mapping[str, Answer]) -> Ephemeral | None:
    """None where the kernel would not say."""
    if answers["range"].status != 0:
        return None
    first, last = map(int, answers["range"].out.split())
    ends = (part.partition("-")[::2] for part in answers["reserved"].out.strip().split(",") if part)
    return Ephemeral(first, last, tuple(range(int(low), int(high or low) + 1) for low, high in ends))


def _questions(_: About) -> dict[str, Question]:
    return {"range": _file("ip_local_port_range"), "reserved": _file("ip_local_reserved_ports")}


def _file(name: str) -> Command:
    return Command(("cat", f"{FOLDER}/{name}"))


FACT: Fact[Ephemeral | None] = Fact("ephemeral", _questions, parse)
