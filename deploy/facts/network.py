"""The network interfaces of a host: what each is, whether it runs, how fast it is, which addresses it has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from deploy.facts import About, Answer, Fact, Program, Question

Kind = Literal["ethernet", "infiniband", "bond", "vlan", "bridge", "docker", "virtual", "loopback"]

CARDS: tuple[Kind, ...] = ("ethernet", "infiniband", "bond", "vlan")  # what leads out where a bridge has it
LOOPBACK, INFINIBAND = 772, 32  # ARPHRD_* of include/uapi/linux/if_arp.h
IFF_UP, IFF_RUNNING = 0x1, 0x40
# What container engines and their networks call their bridges and their ends of a link to a container.
CONTAINERS = re.compile(r"docker|br-[0-9a-f]{12}$|podman|cni|virbr|lxcbr|lxdbr|veth|cali|flannel|cilium|kube-")


@dataclass(frozen=True)
class Interface:
    """One interface."""

    name: str
    kind: Kind
    state: str  # operstate: up, down, lowerlayerdown, dormant; unknown where the driver does not detect a link
    running: bool  # set up and with a link: what NCCL takes at all
    speed: int | None  # Mbit/s; None: the driver does not say, as virtual ones do not
    mtu: int | None  # bytes
    addresses: tuple[str, ...] | None  # as 10.0.0.1/24; None: not known
    default: bool  # a default route leads through it
    driver: str | None = None
    master: str | None = None  # the bridge or bond of which it is a part
    rdma: tuple[str, ...] = ()  # the RDMA devices of the same card
    joined: bool = False  # a bridge that a card of the host's is part of

    @property
    def reachable(self) -> tuple[str, ...]:
        """Its addresses that another host could connect to."""
        own = ("127.", "169.254.", "fe80:", "::1/")
        return tuple(address for address in self.addresses or () if not address.startswith(own))

    @property
    def outward(self) -> bool:
        """Whether it can lead to another host: in a container or a tunnel a virtual one does, on a host of virtual
        machines the bridge with the default route, or one that a card is part of.
        """
        return self.default or self.joined or self.kind not in {"loopback", "docker", "bridge"}


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
    names = {told["index"]: told["name"] for told in answer["interfaces"]}
    found = tuple(_interface(told, answer, names) for told in answer["interfaces"])
    joined = {one.master for one in found if one.master and one.kind in CARDS}
    return Network(
        tuple(replace(one, joined=one.name in joined and one.kind in ("bridge", "docker")) for one in found),
        "" if answer["addresses"] is not None else "the kernel did not tell the addresses",
    )


def _interface(told: Mapping[str, Any], answer: Mapping[str, Any], names: Mapping[int, str]) -> Interface:
    speed, own = told["speed"] or "", answer["addresses"]
    return Interface(
        name=told["name"],
        kind=_kind(told),
        state=told["state"],
        running=told["flags"] & (IFF_UP | IFF_RUNNING) == IFF_UP | IFF_RUNNING,
        speed=int(speed) if speed.isdecimal() and int(speed) else None,
        mtu=told["mtu"],
        addresses=None if own is None else tuple(text for index, text in own if index == told["index"]),
        default=told["name"] in answer["defaults"],
        driver=told["driver"],
        master=names.get(told["master"] or 0),
        rdma=tuple(told["rdma"]),
    )


def _kind(told: Mapping[str, Any]) -> Kind:
    """Bridges and links of containers are told by name: the kernel does not know what they are for."""
    tests: tuple[tuple[Kind, bool], ...] = (
        ("loopback", told["type"] == LOOPBACK),
        ("docker", bool(CONTAINERS.match(told["name"]))),
        ("infiniband", told["type"] == INFINIBAND),
        ("bridge", told["kind"] in ("bridge", "openvswitch")),
        ("bond", told["kind"] in ("bond", "team")),
        ("vlan", told["kind"] == "vlan"),
        ("ethernet", not told["kind"]),
    )
    return next((kind for kind, holds in tests if holds), "virtual")


def _questions(_: About) -> dict[str, Question]:
    """The host's name is asked apart: a name service may take its time, or hang."""
    return {"network": Program("network"), "own": Program("own_address")}


def _parse(answers: Mapping[str, Answer]) -> Network:
    own = answers["own"].document["addresses"] if answers["own"].status == 0 else None
    return replace(parse(answers["network"].read()), own=None if own is None else tuple(own))


FACT: Fact[Network] = Fact("network", _questions, _parse)
