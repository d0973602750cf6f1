"""The RDMA devices of a host, InfiniBand and RoCE: their ports, and the GIDs by which RoCE finds its way."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deploy.facts import About, Answer, Fact, Program, Question

RATE = re.compile(r"([\d.]+) Gb/sec")
NAMED = re.compile(r"\d+: (.*)")  # "4: ACTIVE"


@dataclass(frozen=True)
class Gid:
    """An entry of a port's table; NCCL_IB_GID_INDEX is such an index."""

    index: int
    gid: str
    type: str | None  # "RoCE v2", "IB/RoCE v1", as the kernel has it; None: not told
    interface: str | None  # the network interface that it came from; InfiniBand has none

    @property
    def link_local(self) -> bool:
        return self.gid.startswith("fe80:")

    @property
    def v4(self) -> str | None:
        """The IPv4 address in it, where it is one of a mapped address."""
        if not self.gid.startswith("0000:0000:0000:0000:0000:ffff:"):
            return None
        digits = self.gid.replace(":", "")[-8:]
        return ".".join(str(int(digits[at : at + 2], 16)) for at in range(0, 8, 2))


@dataclass(frozen=True)
class Port:
    """A port of a device."""

    number: int
    state: str | None  # "ACTIVE", "DOWN", "INIT", ...
    layer: str | None  # "InfiniBand", or "Ethernet", which is RoCE
    rate: float | None  # Gbit/s
    gids: tuple[Gid, ...]

    @property
    def active(self) -> bool:
        return self.state == "ACTIVE"

    @property
    def roce(self) -> bool:
        return self.layer == "Ethernet"


@dataclass(frozen=True)
class Device:
    """One device, as NCCL_IB_HCA names it."""

    name: str
    pci: str | None
    numa: int | None
    interfaces: tuple[str, ...]
    usable: bool  # this user may open it; in containers it is often only shown
    ports: tuple[Port, ...]

    @property
    def active(self) -> tuple[Port, ...]:
        return tuple(port for port in self.ports if port.active)


@dataclass(frozen=True)
class Rdma:
    """All devices; () there are none, None is unknown, and `error` says why."""

    devices: tuple[Device, ...] | None
    peermem: bool = False  # NVIDIA's module by which cards reach GPU memory
    open: bool | None = None  # the driver is the open module, which needs no other (DMA-BUF); None: no driver
    error: str = ""

    @property
    def direct(self) -> bool:
        """Whether cards may reach GPU memory; where there is no driver to be seen, nothing speaks against it."""
        return self.peermem or self.open is not False

    @property
    def ready(self) -> tuple[Device, ...]:
        """Those that NCCL could use now."""
        return tuple(device for device in self.devices or () if device.usable and device.active)


def parse(answer: Mapping[str, Any]) -> Rdma:
    """From what `deploy.host.rdma` tells."""
    if answer["devices"] is None:
        return Rdma(None, error=answer["error"])
    return Rdma(tuple(map(_device, answer["devices"])), answer["peermem"], answer["open"])


def _device(told: Mapping[str, Any]) -> Device:
    numa = told["numa"] or ""
    return Device(
        name=told["name"],
        pci=told["pci"],
        numa=int(numa) if numa.isdigit() else None,  # -1: the machine has only one
        interfaces=tuple(told["interfaces"]),
        usable=told["usable"],
        ports=tuple(map(_port, told["ports"])),
    )


def _port(told: Mapping[str, Any]) -> Port:
    state, rate = NAMED.match(told["state"] or ""), RATE.match(told["rate"] or "")
    return Port(
        number=told["number"],
        state=state.group(1) if state else None,
        layer=told["layer"],
        rate=float(rate.group(1)) if rate else None,
        gids=tuple(Gid(**gid) for gid in told["gids"]),
    )


def _questions(_: About) -> dict[str, Question]:
    return {"rdma": Program("rdma")}


def _parse(answers: Mapping[str, Answer]) -> Rdma:
    return parse(answers["rdma"].read())


FACT: Fact[Rdma] = Fact("rdma", _questions, _parse)
