"""NCCL's settings against machines on paper: each row a profile, a machine, and what must be said of the two."""

from __future__ import annotations

from typing import Any

import pytest

from deploy.checks import nccl
from deploy.facts import network, topology
from deploy.facts.iommu import Iommu
from deploy.facts.nccl_conf import NcclConf
from deploy.facts.rdma import Rdma
from deploy.findings import Finding
from tests import hardware
from tests.hardware import BRIDGE, DOCKER, DOWN, ETH, FAST, LO, between, card, interface, matrix, rdma_of, wired

Said = tuple[str, str, str]  # the verdict, words of what is said, words of the remedy
TWO, PAIR = ("nodes=2", "parallel.tp=16"), ("gpus=2", "parallel.tp=2")
PCIE = {"topology": matrix("NODE")}
OF_TWO = {"gpus": hardware.cards(count=2), "topology": matrix("PHB", 2)}
ACS = 0x1D  # SrcValid+ ReqRedir+ CmpltRedir+ UpstreamFwd+, as Linux sets it where an IOMMU is on

CASES: dict[str, tuple[tuple[str, ...], dict[str, Any], list[Said]]] = {
    # what was tuned for NVLink, on cards that have none
    "the shipped profile on its own machine": ((), {}, [("PASS", "nothing is set", "")]),
    "NVLS by flag": (
        ("args.enable-nccl-nvls=true",),
        {},
        [("WARN", "--enable-nccl-nvls: NVLink SHARP needs NVLink", "leave args.enable-nccl-nvls out")],
    ),
    "NVLS by variable": (("nccl.NVLS_ENABLE=1",), {}, [("WARN", "NCCL goes on without", "leave nccl.NVLS_ENABLE out")]),
    "symmetric memory": (("args.enable-symm-mem=true",), {}, [("WARN", "symmetric memory needs NVLink", "")]),
    "MNNVL": (("nccl.MNNVL_ENABLE=1",), {}, [("FAIL", "NCCL will not start", "leave nccl.MNNVL_ENABLE out")]),
    "only algorithms of NVLink": (
        ("nccl.ALGO=NVLS,NVLSTree",),
        {},
        [("FAIL", "has no algorithm left", "leave nccl.ALGO out")],
    ),
    "one of them beside another": (("nccl.ALGO=NVLS,Ring",), {}, [("PASS", "NCCL_ALGO", "")]),
    "P2P over NVLink only": (("nccl.P2P_LEVEL=NVL",), {}, [("WARN", "there is no NVLink", "nccl.P2P_DISABLE=1")]),
    "the same settings with NVLink": (
        ("nccl.NVLS_ENABLE=1", "args.enable-nccl-nvls=true", "nccl.P2P_LEVEL=NVL", "nccl.ALGO=NVLS"),
        {"topology": matrix("NV18"), "gpus": hardware.cards(hardware.B200)},
        [("PASS", "NCCL_NVLS_ENABLE", "")],
    ),
    "P2P off, with NVLink": (
        ("nccl.P2P_DISABLE=1",),
        {"topology": matrix("NV18")},
        [("WARN", "NCCL_P2P_DISABLE=1 leaves NVLink unused", "leave nccl.P2P_DISABLE out")],
    ),
    "GPUs by UUID, with NVLink": (
        (*PAIR, "env.CUDA_VISIBLE_DEVICES=GPU-1,GPU-0"),
        {"topology": matrix("NV18")},
        [("WARN", "leaves its own all-reduce off", "by their index")],
    ),
    # P2P over PCIe
    "an IOMMU, and NCCL does not reach so far": ((), {"iommu": between("DMA-FQ", ACS), **PCIE}, [("PASS", "", "")]),
    "an IOMMU, and P2P is told to reach everywhere": (
        ("nccl.P2P_LEVEL=SYS",),
        {"iommu": between("DMA-FQ", said=["amd_iommu=on"])},
        [("WARN", "NCCL may hang", "set nccl.P2P_DISABLE=1; or iommu=pt")],
    ),
    "ACS alone": (
        ("nccl.P2P_LEVEL=PHB",),
        {"iommu": between(acs=ACS), **PCIE},
        [("WARN", "NCCL may hang", "set nccl.P2P_DISABLE=1; or ACS off")],
    ),
    "ACS that redirects nothing": (("nccl.P2P_LEVEL=PHB",), {"iommu": between(acs=0x11), **PCIE}, [("PASS", "", "")]),
    "an IOMMU that lets pass": (("nccl.P2P_LEVEL=SYS",), {"iommu": between("identity")}, [("PASS", "", "")]),
    "P2P that does not reach": (("nccl.P2P_LEVEL=PHB",), {"iommu": between("DMA")}, [("PASS", "", "")]),
    "an old level": (("nccl.P2P_LEVEL=4",), {"iommu": between("DMA")}, [("WARN", "NCCL may hang", "")]),
    "behind one switch": ((), {"iommu": between(acs=ACS), "topology": matrix("PIX")}, [("WARN", "may hang", "")]),
    "P2P off": (
        ("nccl.P2P_LEVEL=SYS", "nccl.P2P_DISABLE=1"),
        {"iommu": between("DMA", ACS)},
        [("PASS", "NCCL_P2P_DISABLE", "")],
    ),
    "ACS may not be read": (
        ("nccl.P2P_LEVEL=SYS",),
        {"iommu": between(acs="unreadable")},
        [("WARN", "cannot be seen", "if NCCL hangs: set nccl.P2P_DISABLE=1")],
    ),
    "an old kernel": (
        ("nccl.P2P_LEVEL=SYS",),
        {"iommu": between("DMA", gpus=[{"pci": "0000:10:00.0", "group": "1", "type": None, "bridges": []}])},
        [("WARN", "cannot be seen", "")],
    ),
    "a virtual machine": (("nccl.P2P_LEVEL=SYS",), {"iommu": between(guest=True)}, [("WARN", "cannot be seen", "")]),
    "nothing is shown of PCI": (
        ("nccl.P2P_LEVEL=SYS",),
        {"iommu": Iommu(None, None, {}, (), error="/sys/bus/pci/devices shows nothing")},
        [("UNKNOWN", "cannot be seen", "")],
    ),
    "two GPUs of an AMD machine": (
        PAIR,
        {"iommu": between("DMA"), **OF_TWO},
        [("WARN", "may hang", "set nccl.P2P_DISABLE=1, args.disable-custom-all-reduce=true")],
    ),
    "two GPUs of another": (
        PAIR,
        {"iommu": between("DMA", vendor="GenuineIntel"), **OF_TWO},
        [("WARN", "may hang", "set args.disable-custom-all-reduce=true")],
    ),
    "two, with all of it off": (
        (*PAIR, "nccl.P2P_DISABLE=1", "args.disable-custom-all-reduce=true"),
        {"iommu": between("DMA"), **OF_TWO},
        [("PASS", "", "")],
    ),
    "two on each of two hosts": (
        ("nodes=2", "gpus=2", "parallel.tp=4"),
        {"iommu": between("DMA", vendor="GenuineIntel"), **OF_TWO},
        [("PASS", "", "")],  # the engine's own all-reduce does not span hosts
    ),
    "SGLang's all-reduce over PCIe": (
        ("env.SGLANG_ENABLE_PCIE_IPC_ALLREDUCE=1",),
        {"iommu": between("DMA")},
        [("WARN", "may hang", "set no env.SGLANG_ENABLE_PCIE_IPC_ALLREDUCE")],
    ),
    "neither shared memory nor P2P": (
        ("nccl.SHM_DISABLE=1",),
        {},
        [("WARN", "they talk by the network", "leave nccl.SHM_DISABLE out")],
    ),
    "no shared memory, and P2P everywhere": (("nccl.SHM_DISABLE=1", "nccl.P2P_LEVEL=SYS"), {}, [("PASS", "", "")]),
    "no nvidia-smi topo": (
        (),
        {"topology": topology.Topology(None, {}, {}, {}, {}, None, "not supported")},
        [("UNKNOWN", "what connects the GPUs is not known", "")],
    ),
    "one GPU has nobody to talk to": (("gpus=1", "parallel.tp=1", "nccl.NVLS_ENABLE=1"), {}, []),
    # variables
    "a word for a number": (
        ("env.NCCL_IB_DISABLE=yes",),
        {},
        [("FAIL", "NCCL_IB_DISABLE=yes is read as 0", "set NCCL_IB_DISABLE=1")],
    ),
    "a slip": (("env.NCCL_P2P_DISBLE=1",), {}, [("WARN", "NCCL_P2P_DISBLE", "did you mean NCCL_P2P_DISABLE?")]),
    "a plug-in's": (("env.NCCL_FASTRAK_X=1",), {}, [("WARN", "NCCL_FASTRAK_X", "a plug-in may read it")]),
    "a file on the host": (
        (),
        {"nccl_conf": NcclConf({"NCCL_NVLS_ENABLE": ("1", "/etc/nccl.conf")})},
        [("WARN", "NCCL_NVLS_ENABLE=1", "")],
    ),
    "a file on the host that is overruled": (
        ("nccl.NVLS_ENABLE=0",),
        {"nccl_conf": NcclConf({"NCCL_NVLS_ENABLE": ("1", "/etc/nccl.conf")})},
        [("PASS", "", "")],
    ),
    # interfaces
    "one that is not there": (
        ("nccl.SOCKET_IFNAME=ens1f1",),
        {"network": wired(LO, ETH, FAST)},
        [("FAIL", "names no interface of the host", "set nccl.SOCKET_IFNAME==ens1f0")],
    ),
    "one that is down": (("nccl.SOCKET_IFNAME=eth1",), {"network": wired(LO, ETH, DOWN)}, [("FAIL", "is down", "")]),
    "one without an address of the family": (
        ("nccl.SOCKET_IFNAME=ens1f0", "nccl.SOCKET_FAMILY=AF_INET6"),
        {"network": wired(LO, ETH, FAST)},
        [("FAIL", "has no address", "nccl.SOCKET_IFNAME==eth0")],
    ),
    "a beginning": (("nccl.SOCKET_IFNAME=e",), {"network": wired(LO, ETH, FAST)}, [("PASS", "", "")]),
    "no name at all": (("nccl.SOCKET_IFNAME==,",), {"network": wired(LO, ETH)}, [("PASS", "", "")]),
    "one of two is there": (
        ("nccl.SOCKET_IFNAME=ens1f0,ib0",),
        {"network": wired(LO, ETH, FAST)},
        [("WARN", "there is no ib0", "")],
    ),
    "loopback, on one host": (("nccl.SOCKET_IFNAME=lo",), {}, [("PASS", "", "")]),
    "loopback, on two": (
        (*TWO, "nccl.SOCKET_IFNAME=lo"),
        {},
        [("FAIL", "leads to no other host: lo is loopback", "set nccl.SOCKET_IFNAME==eth0")],
    ),
    "docker's, on two": (
        (*TWO, "nccl.SOCKET_IFNAME=docker0"),
        {"network": wired(LO, ETH, DOCKER)},
        [("FAIL", "docker0 is docker", "")],
    ),
    "a bridge that has a card, on two": (
        (*TWO, "nccl.SOCKET_IFNAME=vmbr1"),
        {"network": wired(LO, ETH, interface("vmbr1", "198.51.100.1/24", kind="bridge"), interface("eno2", master=3))},
        [("PASS", "", "")],
    ),
    "a bridge of virtual machines alone, on two": (
        (*TWO, "nccl.SOCKET_IFNAME=vmbr1"),
        {
            "network": wired(
                LO,
                ETH,
                interface("vmbr1", "198.51.100.1/24", kind="bridge"),
                interface("tap0", kind="tun", master=3),
            )
        },
        [("FAIL", "vmbr1 is bridge", "")],
    ),
    "all but loopback, on two": (
        (*TWO, "nccl.SOCKET_IFNAME=^lo"),
        {"network": wired(LO, ETH, DOCKER)},
        [("WARN", "also takes docker0", "")],
    ),
    "none named, one candidate": (TWO, {"network": wired(LO, ETH, DOCKER, DOWN)}, [("PASS", "", "")]),
    "none named, two candidates": (
        TWO,
        {"network": wired(LO, ETH, FAST)},
        [("WARN", "NCCL takes eth0 (ethernet), ens1f0 (ethernet)", "set nccl.SOCKET_IFNAME==ens1f0")],
    ),
    "none named, and a bridge that NCCL does not know for one": (
        TWO,
        {"network": wired(LO, ETH, BRIDGE)},
        [("WARN", "br-0123456789ab (docker)", "set nccl.SOCKET_IFNAME==eth0")],
    ),
    "none that leads out": (TWO, {"network": wired(LO, DOCKER)}, [("FAIL", "leads to another host", "")]),
    "Gloo takes no beginnings": (
        ("env.GLOO_SOCKET_IFNAME=eth",),
        {},
        [("FAIL", "GLOO_SOCKET_IFNAME=eth names no interface", "set env.GLOO_SOCKET_IFNAME=eth0")],
    ),
    "nor marks": (("env.GLOO_SOCKET_IFNAME=^docker0",), {}, [("FAIL", "it takes exact names", "")]),
    "Gloo by the host's own name, which is loopback": (
        TWO,
        {"network": wired(LO, ETH, own=("127.0.1.1",))},
        [("FAIL", "own name, which leads to 127.0.1.1", "set env.GLOO_SOCKET_IFNAME=eth0")],
    ),
    "a name that leads nowhere": (TWO, {"network": wired(LO, ETH, own=())}, [("FAIL", "which leads to nothing", "")]),
    "a name service that hangs": (TWO, {"network": wired(LO, ETH, own=None)}, [("UNKNOWN", "is not known", "")]),
    "interfaces unknown": (
        TWO,
        {"network": network.Network(None, "no /sys")},
        [("UNKNOWN", "network interfaces are not known", "")],
    ),
    # RDMA
    "InfiniBand that is switched off": (
        (*TWO, "nccl.IB_DISABLE=1"),
        {"rdma": rdma_of(card("mlx5_0"))},
        [("WARN", "RDMA is there: all goes by TCP", "leave nccl.IB_DISABLE out")],
    ),
    "InfiniBand that is not there": (
        (*TWO, "nccl.NET=IB"),
        {},
        [("FAIL", "no RDMA device can be used", "leave it out")],
    ),
    "cards that are not there": ((*TWO, "nccl.IB_HCA=mlx5"), {}, [("WARN", "no RDMA device can be used", "")]),
    "off, and none there": ((*TWO, "nccl.IB_DISABLE=1"), {}, [("PASS", "", "")]),
    "a container that only shows them": (
        TWO,
        {"rdma": rdma_of(card("mlx5_0", usable=False))},
        [("WARN", "none can be used", "--device /dev/infiniband")],
    ),
    "a port that is down": (
        TWO,
        {"rdma": rdma_of(card("mlx5_0", state="1: DOWN"))},
        [("WARN", "none can be used", "")],
    ),
    "another card's name": (
        (*TWO, "nccl.IB_HCA=mlx5_9"),
        {"rdma": rdma_of(card("mlx5_0"))},
        [("FAIL", "names no RDMA device", "nccl.IB_HCA==mlx5_0")],
    ),
    "a beginning that takes more": (
        (*TWO, "nccl.IB_HCA=mlx5_1"),
        {"rdma": rdma_of(card("mlx5_1"), card("mlx5_10"))},
        [("WARN", "takes mlx5_10 too", "set nccl.IB_HCA==mlx5_1")],
    ),
    "an exact one": (
        (*TWO, "nccl.IB_HCA==mlx5_1:1"),
        {"rdma": rdma_of(card("mlx5_1"), card("mlx5_10"))},
        [("PASS", "", "")],
    ),
    "cards that do not reach GPU memory": (
        TWO,
        {"rdma": rdma_of(card("mlx5_0"), peermem=False)},
        [("WARN", "cannot reach GPU memory", "modprobe nvidia-peermem")],
    ),
    "cards that do by the open module": (
        TWO,
        {"rdma": rdma_of(card("mlx5_0"), peermem=False, open=True)},
        [("PASS", "", "")],
    ),
    "RoCE v2": ((*TWO, "nccl.IB_GID_INDEX=3"), {"rdma": rdma_of(card("rocep1", "Ethernet"))}, [("PASS", "", "")]),
    "RoCE v1": (
        (*TWO, "nccl.IB_GID_INDEX=2"),
        {"rdma": rdma_of(card("rocep1", "Ethernet"))},
        [("WARN", "of rocep1 port 1 is IB/RoCE v1", "(here 3)")],
    ),
    "a GID that is link-local": (
        (*TWO, "nccl.IB_GID_INDEX=1"),
        {"rdma": rdma_of(card("rocep1", "Ethernet"))},
        [("WARN", "is link-local", "(here 3)")],
    ),
    "a GID that is not there": (
        (*TWO, "nccl.IB_GID_INDEX=7"),
        {"rdma": rdma_of(card("rocep1", "Ethernet"))},
        [("FAIL", "is not there", "leave nccl.IB_GID_INDEX out")],
    ),
    "InfiniBand needs none": ((*TWO, "nccl.IB_GID_INDEX=7"), {"rdma": rdma_of(card("mlx5_0"))}, [("PASS", "", "")]),
    "RDMA unknown": (TWO, {"rdma": Rdma(None, error="may not be listed")}, [("UNKNOWN", "RDMA devices", "")]),
    "RDMA within one host": (("nccl.IB_DISABLE=1",), {"rdma": rdma_of(card("mlx5_0"))}, [("PASS", "", "")]),
}


def told(found: list[Finding], expected: list[Said]) -> bool:
    return len(found) == len(expected) and all(
        one.check == "nccl" and one.verdict == verdict and what in one.what and remedy in one.remedy
        for one, (verdict, what, remedy) in zip(found, expected, strict=True)
    )


@pytest.mark.parametrize("name", CASES)
def test_settings_are_judged_against_the_machine(name: str) -> None:
    changes, machine, expected = CASES[name]
    node = hardware.nodes("kimi-eagle3", *changes)[0]

    found = list(nccl.check(hardware.case(node, **machine)))

    assert told(found, expected), "\n".join(map(str, found))


def test_without_a_profile_nothing_is_judged() -> None:
    assert list(nccl.check(hardware.case(None))) == []


def test_of_a_server_that_may_talk_otherwise_only_what_is_set_is_judged() -> None:
    node = hardware.nodes("local", "nccl.NVLS_ENABLE=1", "env.NCCL_IB_DISABLE=yes")[0]

    assert [one.what for one in nccl.check(hardware.case(node))] == [
        "NCCL_IB_DISABLE=yes is read as 0: NCCL takes a number here"
    ]


def test_what_lies_between_is_shown_as_lspci_names_it() -> None:
    node = hardware.nodes("kimi-eagle3", "nccl.P2P_LEVEL=SYS")[0]

    (found,) = nccl.check(hardware.case(node, iommu=between("DMA-FQ", ACS, said=["amd_iommu=on"])))

    assert "SYS (the link between NUMA nodes): GPUs 0-1, 0-2, 0-3, 0-4, 0-5, 0-6, ...\n" in found.evidence
    assert "the IOMMU (ivhd0) translates what GPUs write: DMA-FQ (kernel: amd_iommu=on)" in found.evidence
    assert "0000:06:01.0, 0000:07:01.0: SrcValid+ ReqRedir+ CmpltRedir+ UpstreamFwd+" in found.evidence


def test_a_variable_from_a_file_on_the_host_says_so() -> None:
    node = hardware.nodes("kimi-eagle3")[0]
    conf = NcclConf({"NCCL_BUFFSIZE": ("4M", "/etc/nccl.conf")})

    (found,) = nccl.check(hardware.case(node, nccl_conf=conf))

    assert (found.verdict, found.evidence) == ("FAIL", "in /etc/nccl.conf on the host")


ACROSS: dict[str, tuple[list[tuple[str, ...]], list[tuple[str, str]]]] = {
    "alike": ([("nccl.PROTO=LL",), ("nccl.PROTO=LL",)], []),
    "one without": (
        [("nccl.PROTO=LL",), ("nccl.PROTO=LL",), ()],
        [("gpu3", "NCCL_PROTO is not set here, and LL on 2 other hosts")],
    ),
    "names of their own": ([("nccl.SOCKET_IFNAME=eth0", "nccl.IB_HCA=mlx5_0"), ("nccl.SOCKET_IFNAME=eth1",)], []),
}


@pytest.mark.parametrize("name", ACROSS)
def test_hosts_of_a_deployment_are_set_alike(name: str) -> None:
    settings, expected = ACROSS[name]
    several = (f"nodes={len(settings)}", "gpus=8", f"parallel.tp={8 * len(settings)}")
    cases = [
        hardware.case(hardware.nodes("kimi-eagle3", *several, *changes)[rank]) for rank, changes in enumerate(settings)
    ]

    found = list(nccl.across(cases))

    assert [(host, one.what) for host, one in found] == expected
    assert {one.verdict for _, one in found} <= {"WARN"}


def test_nodes_on_one_machine_are_not_apart() -> None:
    """Tests and tries run several nodes at loopback addresses: Gloo may bind to loopback there."""
    node = hardware.nodes("kimi-eagle3", *TWO, address="127.0.0.{}")[0]

    (found,) = nccl.check(hardware.case(node, network=wired(LO, ETH, FAST, own=("127.0.1.1",))))

    assert found.verdict == "PASS"
