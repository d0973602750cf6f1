"""Hosts on paper: what one look at them would tell, for judging a profile against machines that are not here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from deploy import facts, plan, settings
from deploy.checks import Case
from deploy.facts import gpus, iommu, nccl_conf, network, rdma, topology
from deploy.facts.gpus import Gpu, Gpus
from deploy.inventory import Host
from deploy.plan import Draft, Node
from deploy.project import Project

ROOT = Path(__file__).parents[1]
RTX, B200, H200 = "NVIDIA RTX PRO 6000 Blackwell Server Edition", "NVIDIA B200", "NVIDIA H200"
CAPABILITY = {RTX: "12.0", B200: "10.0", H200: "9.0"}


def nodes(name: str, *changes: str, draft: Draft | None = None, address: str = "192.0.2.{}") -> tuple[Node, ...]:
    """Those of a shipped profile with some settings changed, on hosts of 8 GPUs."""
    profile = settings.load(name, changes, Project(ROOT), {}, ROOT).profile()
    hosts = [
        Host.model_validate({"name": f"gpu{n}", "address": address.format(n), "gpus": 8})
        for n in range(1, profile.nodes + 1)
    ]
    return plan.make(dict.fromkeys(hosts, profile), draft, None).nodes


def cards(model: str = RTX, count: int = 8) -> Gpus:
    return Gpus(tuple(Gpu(i, f"GPU-{i}", model, 97887, 0, "595.71.05", CAPABILITY[model]) for i in range(count)), ())


def matrix(link: str = "SYS", count: int = 8, **other: str) -> topology.Topology:
    """Each GPU linked so to each; other pairs as "g0_1": "NV4"."""
    odd = {tuple(sorted(name[1:].split("_"))): kind for name, kind in other.items()}
    between = {
        (f"GPU{a}", f"GPU{b}"): odd.get(tuple(sorted((str(a), str(b)))), link)
        for a in range(count)
        for b in range(count)
        if a != b
    }
    return topology.Topology(tuple(f"GPU{i}" for i in range(count)), between, {}, {}, {}, ())


def interface(name: str, *addresses: str, **told: Any) -> dict[str, Any]:
    """One as the host's program tells it: an Ethernet card that is up."""
    usual = {"type": 1, "flags": 0x11043, "state": "up", "kind": "", "speed": "25000", "mtu": 1500, "master": None}
    return {**usual, "driver": "mlx5_core", "rdma": [], "name": name, "addresses": addresses, **told}


LO = interface("lo", "127.0.0.1/8", "::1/128", type=772, flags=0x10049, state="unknown", speed=None)
ETH = interface("eth0", "192.0.2.1/24", "fe80::1/64", speed="10000")
FAST = interface("ens1f0", "198.51.100.1/24", speed="100000")
DOWN = interface("eth1", "203.0.113.1/24", flags=0x1003, state="down", speed=None)
DOCKER = interface("docker0", "172.17.0.1/16", kind="bridge", driver=None, speed=None)
BRIDGE = interface("br-0123456789ab", "172.18.0.1/16", kind="bridge", driver=None, speed=None)


def wired(*interfaces: dict[str, Any], own: tuple[str, ...] | None = ("192.0.2.1",)) -> network.Network:
    links = [{**told, "index": index} for index, told in enumerate(interfaces, 1)]
    addresses = [(told["index"], address) for told in links for address in told["addresses"]]
    told = {"interfaces": links, "addresses": addresses, "defaults": ["eth0"], "error": ""}
    return replace(network.parse(told), own=own)


def gid(index: int, kind: str, last: str = "c633:6401") -> dict[str, Any]:
    """198.51.100.1, unless another one is said."""
    own = last if last.startswith("fe80") else f"0000:0000:0000:0000:0000:ffff:{last}"
    return {"index": index, "gid": own, "type": kind, "interface": "ens1f0"}


ROCE = [
    gid(0, "IB/RoCE v1", "fe80:0000:0000:0000:0000:0000:0000:0001"),
    gid(1, "RoCE v2", "fe80:0000:0000:0000:0000:0000:0000:0001"),
    gid(2, "IB/RoCE v1"),
    gid(3, "RoCE v2"),
]


def card(name: str, layer: str = "InfiniBand", state: str = "4: ACTIVE", **told: Any) -> dict[str, Any]:
    port = {"number": 1, "state": state, "physical": "5: LinkUp", "layer": layer, "rate": "400 Gb/sec (4X NDR)"}
    gids = ROCE if layer == "Ethernet" else [gid(0, "IB/RoCE v1", "fe80:0000:0000:0000:0000:0000:0000:0001")]
    usual = {"pci": "0000:41:00.0", "numa": "0", "interfaces": [], "usable": True, "ports": [{**port, "gids": gids}]}
    return {"name": name, **usual, **told}


def rdma_of(*devices: dict[str, Any], **told: Any) -> rdma.Rdma:
    return rdma.parse({"devices": list(devices), "peermem": True, "open": False, "error": "", **told})


def between(kind: str | None = None, acs: int | str | None = 0, **told: Any) -> iommu.Iommu:
    """What lies between the GPUs: no IOMMU, or groups of a type; each GPU behind a bridge with that in its ACS."""
    bridges = [f"0000:{n:02x}:01.0" for n in range(8)]
    usual = {"vendor": "AuthenticAMD", "machine": "x86_64", "guest": False, "said": [], "error": ""}
    paths = [
        {"pci": f"0000:{n + 16:02x}:00.0", "group": str(n) if kind else None, "type": kind, "bridges": [bridges[n]]}
        for n in range(8)
    ]
    units = ["ivhd0"] if kind else []
    return iommu.parse({"iommus": units, "gpus": paths, "bridges": dict.fromkeys(bridges, acs), **usual, **told})


def case(node: Node | None, remote: Any = None, **told: Any) -> Case:
    """A host of eight RTX PRO 6000 without anything between them, one interface and no RDMA, or what is told."""
    usual: dict[str, Any] = {
        gpus.FACT.name: cards(),
        topology.FACT.name: matrix(),
        iommu.FACT.name: between(),
        network.FACT.name: wired(LO, ETH),
        rdma.FACT.name: rdma_of(),
        nccl_conf.FACT.name: nccl_conf.NcclConf({}),
    }
    host = node.host if node else Host.model_validate({"name": "gpu1"})
    return Case(host, facts.known(**{**usual, **told}), node, remote)
