"""What the rules about NCCL look at: a server's effective environment and flags, beside its host's hardware."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from deploy.checks import Case
from deploy.config.nccl import Nccl
from deploy.config.nccl_words import PREFIX, reads
from deploy.engines._ports import Said
from deploy.facts import gpus, iommu, nccl_conf, network, rdma, topology
from deploy.facts.iommu import Iommu
from deploy.facts.nccl_conf import NcclConf
from deploy.facts.network import Network
from deploy.facts.rdma import Rdma
from deploy.facts.topology import Topology
from deploy.findings import Finding, Verdict
from deploy.ownership import visible
from deploy.plan import Node

TOPIC = "nccl"
TALKING = ("sglang", "vllm")  # engines whose ranks surely talk by NCCL, and by Gloo beside it


@dataclass(frozen=True)
class Ranks:
    """The ranks of a node, and what they run on. `gpus` are indices; None: it is not known which."""

    node: Node
    said: Said
    gpus: tuple[int, ...] | None
    network: Network
    rdma: Rdma
    iommu: Iommu
    topology: Topology
    conf: NcclConf

    @cached_property
    def env(self) -> Mapping[str, str]:
        """With what NCCL's files on the host add to it."""
        return {**{name: value for name, (value, _) in self.conf.variables.items()}, **self.said.env}

    @property
    def talking(self) -> bool:
        """Whether it is known how they talk; of any other server only what is set is judged."""
        return self.node.profile.engine.name in TALKING

    @property
    def apart(self) -> bool:
        """Whether there are ranks on another machine; nodes at loopback addresses are all on this one."""
        address = self.node.host.address
        return self.node.profile.nodes > 1 and address != "localhost" and not address.startswith(("127.", "::1"))

    @property
    def alone(self) -> bool:
        """Whether no GPU has another one to talk to, so that NCCL is not used."""
        return not self.node.gpus or (self.node.gpus == 1 and self.node.profile.nodes == 1)

    def number(self, name: str) -> int | None:
        """What NCCL reads in one of its variables, named without prefix; None: it is not set."""
        value = self.env.get(f"{PREFIX}{name}", "")
        return reads(value) if value else None

    def whence(self, variable: str) -> str:
        """Where a variable comes from, if it is from a file on the host."""
        return "" if variable in self.said.env else f"in {self.conf.variables[variable][1]} on the host"


def ranks(case: Case) -> Ranks | None:
    """None where nothing is to run."""
    node = case.node
    if node is None:
        return None
    found = case.facts[gpus.FACT].all
    taken = None if found is None else visible.of(node, found)
    return Ranks(
        node=node,
        said=node.said(),
        gpus=None if taken is None or taken.wrong or taken.mig else tuple(gpu.index for gpu in taken.gpus),
        network=case.facts[network.FACT],
        rdma=case.facts[rdma.FACT],
        iommu=case.facts[iommu.FACT],
        topology=case.facts[topology.FACT],
        conf=case.facts[nccl_conf.FACT],
    )


def key(variable: str) -> str:
    """Where a profile says a variable."""
    name = variable.removeprefix(PREFIX)
    return f"nccl.{name}" if variable.startswith(PREFIX) and name in Nccl.model_fields else f"env.{variable}"


def found(verdict: Verdict, what: str, evidence: str = "", remedy: str = "") -> Finding:
    """A finding of this topic."""
    return Finding(TOPIC, verdict, what, evidence, remedy)
