"""What lies between the GPUs of a host on PCIe: an IOMMU that translates, bridges whose ACS sends all traffic up.

Both turn direct traffic between two GPUs (P2P) into traffic through the processor, where it crawls, or into traffic
that never arrives, where NCCL hangs (NCCL's user guide, GPU troubleshooting, "PCI Access Control Services").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deploy.facts import About, Answer, Fact, Program, Question

# Bits of the ACS control register, PCI Express base specification 7.7.11.3: these two send what one device writes to
# another up to the root, and the answers too.
REQUESTS, COMPLETIONS = 0x4, 0x8
BITS = {
    0x1: "SrcValid", 0x2: "TransBlk", REQUESTS: "ReqRedir", COMPLETIONS: "CmpltRedir", 0x10: "UpstreamFwd",
    0x20: "EgressCtrl", 0x40: "DirectTrans",
}  # fmt: skip
PASSES = "identity"  # the type of an IOMMU group whose addresses are not translated


@dataclass(frozen=True)
class Path:
    """How one GPU hangs in the machine."""

    pci: str  # its address, as 0000:01:00.0
    group: str | None  # of the IOMMU; None: in none, so no IOMMU
    type: str | None  # of the group: DMA, DMA-FQ, identity; None: the kernel does not tell (before 5.11)
    bridges: tuple[str, ...]  # above it, the root port first


@dataclass(frozen=True)
class Iommu:
    """None is unknown; `error` says why."""

    units: tuple[str, ...] | None  # the IOMMUs that are on: dmar0, ivhd0, smmu3.0x...
    gpus: tuple[Path, ...] | None  # NVIDIA's
    acs: Mapping[str, int | None]  # of the bridges above them: the control register; None: it has no ACS
    unreadable: tuple[str, ...]  # bridges of which only root may read that
    vendor: str | None = None  # the processor's: GenuineIntel, AuthenticAMD; Arm says none
    machine: str = ""
    guest: bool | None = None  # a virtual machine, which does not see what its host does
    said: tuple[str, ...] = ()  # words of the kernel's command line about it
    error: str = ""

    @property
    def translating(self) -> bool | None:
        """Whether an IOMMU translates what a GPU writes to another."""
        if self.gpus is None or self.units is None:
            return None
        groups = [path for path in self.gpus if path.group is not None]
        if not groups:
            return False
        if any(path.type is None for path in groups):
            return None
        return any(path.type != PASSES for path in groups)

    @property
    def redirecting(self) -> Mapping[str, str]:
        """The bridges whose ACS sends peers' traffic to the root, and the bits that are set, as lspci names them."""
        return {
            bridge: " ".join(f"{name}+" for bit, name in BITS.items() if control & bit)
            for bridge, control in self.acs.items()
            if control and control & (REQUESTS | COMPLETIONS)
        }


def parse(answer: Mapping[str, Any]) -> Iommu:
    """From what `deploy.host.iommu` tells."""
    units, gpus = answer["iommus"], answer["gpus"]
    return Iommu(
        units=None if units is None else tuple(units),
        gpus=None if gpus is None else tuple(Path(**{**told, "bridges": tuple(told["bridges"])}) for told in gpus),
        acs={bridge: control for bridge, control in answer["bridges"].items() if control != "unreadable"},
        unreadable=tuple(bridge for bridge, control in answer["bridges"].items() if control == "unreadable"),
        vendor=answer["vendor"],
        machine=answer["machine"],
        guest=answer["guest"],
        said=tuple(answer["said"]),
        error=answer["error"],
    )


def _questions(_: About) -> dict[str, Question]:
    return {"iommu": Program("iommu")}


def _parse(answers: Mapping[str, Answer]) -> Iommu:
    return parse(answers["iommu"].read())


FACT: Fact[Iommu] = Fact("iommu", _questions, _parse)
