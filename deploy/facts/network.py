"""The network interfaces of a host: what each is, whether it runs, how fast it is, which addresses it has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from deploy.facts import About, Answer, Fact, Program, Question

Kind = Literal["ethernet", "infiniband", "bond", "vlan", "bridge", "docker", "virtual", "loopback"]

# ARPHRD_* of include/uapi/linux/if_arp.h
LOOPBACK, INFINIBAND = "772", "32"
IFF_UP = 0x1
# What container engines and their networks call their bridges and their ends of a link to a container.
CONTAINERS = re.compile(r"docker|br-[0-9a-f]{12}$|podman|cni|virbr|lxcbr|lxdbr|veth|cali|flannel|cilium|kube-")
RUNNING = {"up", "unknown"}  # operstate; drivers without link detection say unknown


@dataclass(frozen=True)
class Interface:
    """One interface."""

    name: str
    kind: Kind
    state: str  # operstate: up, down, lowerlayerdown, dormant, unknown; "" is not told
    running: bool  # set up and with a link: what NCCL takes at all
    speed: int | None  # Mbit/s; None: the driver does not say, as virtual ones do not
    mtu: int | None  # bytes
    addresses: tuple[str, ...] | None  # as 10.0.0.1/24; None: not known
    default: bool  # a default route leads through it
    driver: str | None = None
    master: str | None = None  # the bridge or bond that it is part of
    rdma: tuple[str, ...] = ()  # the RDMA devices of the same card

    @property
    def reachable(self) -> tuple[str, ...]:
        """Its addresses that another host could connect to."""
        own = ("127.", "169.254.", "fe80:", "::1/")
        return tuple(address for address in self.addresses or () if not address.startswith(own))

    @property
    def outward(self) -> bool:
        """Whether it can lead to another host; in a container a virtual one with the default route does."""
        return self.default or self.kind in {"ethernet", "infiniband", "bond", "vlan"}


@dataclass(frozen=True)
class Network:
    """All interfaces; None is unknown, and `error` says why."""

    interfaces: tuple[Interface, ...] | None
    error: str = ""
    own: tuple[str, ...] | None = None  # what the host's own name leads to; (): to nothing

    def get(self, name: str) -> Interface | None:
        """The interface of that name."""
        return next((one for one in self.interfaces or () if one.name == name), None)


def parse(answer: Mapping[str, Any]) -> Network:
    """From what `deploy.host.network` tells."""
    if answer["interfaces"] is None:
        return Network(None, answer["error"])
    addresses, defaults = answer["addresses"], frozenset(answer["defaults"])
    return Network(
        tuple(_interface(told, addresses, told["name"] in defaults) for told in answer["interfaces"]),
        "" if addresses is not None else "the kernel did not tell the addresses",
    )


def _interface(told: Mapping[str, Any], addresses: Mapping[str, Any] | None, default: bool) -> Interface:
    state = told["state"] or ""
    speed = told["speed"] or ""
    return Interface(
        name=told["name"],
        kind=_kind(told),
        state=state,
        running=bool(int(told["flags"] or "0", 16) & IFF_UP) and state in RUNNING,
        speed=int(speed) if speed.isdigit() and int(speed) else None,
        mtu=int(told["mtu"]) if (told["mtu"] or "").isdigit() else None,
        addresses=None if addresses is None else tuple(addresses.get(told["name"], ())),
        default=default,
        driver=told["driver"],
        master=told["master"],
        rdma=tuple(told["rdma"]),
    )


def _kind(told: Mapping[str, Any]) -> Kind:
    """Bridges and links of containers are told by name: the kernel does not know what they are for."""
    tests: tuple[tuple[Kind, bool], ...] = (
        ("loopback", told["type"] == LOOPBACK),
        ("docker", bool(CONTAINERS.match(told["name"]))),
        ("bridge", told["bridge"]),
        ("bond", told["bonding"]),
        ("vlan", told["devtype"] == "vlan"),
        ("infiniband", told["type"] == INFINIBAND),
        ("ethernet", told["device"]),
    )
    return next((kind for kind, holds in tests if holds), "virtual")


def _questions(_: About) -> dict[str, Question]:
    """The host's name is asked apart: a name service may take its time, or hang."""
    return {"network": Program("network"), "own": Program("own_address")}


def _parse(answers: Mapping[str, Answer]) -> Network:
    own = answers["own"]
    named = tuple(own.document["addresses"]) if own.status == 0 else None
    return replace(parse(answers["network"].read()), own=named)


FACT: Fact[Network] = Fact("network", _questions, _parse)
