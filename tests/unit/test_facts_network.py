"""Facts of networks, RDMA and PCIe: of this very machine, of namespaces with real interfaces, and of /sys on paper."""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from deploy import host
from deploy.facts import Answer, iommu, nccl_conf, network, rdma
from deploy.facts.network import Network
from deploy.host import iommu as look_iommu
from deploy.host import nccl_conf as look_conf
from deploy.host import network as look_network
from deploy.host import own_address
from deploy.host import rdma as look_rdma
from tests.project import PATIENCE

INSIDE = """
set -e
ip link add br-0123456789ab type bridge
ip link add eth0 type veth peer name eth1
ip link set eth1 master br-0123456789ab
ip address add 172.18.0.1/16 dev br-0123456789ab
ip address add 192.0.2.7/24 dev eth0
ip address add 2001:db8::7/64 dev eth0 nodad
for name in lo br-0123456789ab eth0 eth1; do ip link set $name up; done
ip route add default via 192.0.2.1
ip link add veth9 type veth peer name idle
exec "$0" -I -c "$1"
"""
NEEDS = [tool for tool in ("unshare", "ip") if not shutil.which(tool)]


def of_namespace(script: str) -> Network:
    """What the program tells in a network namespace of its own, while /sys still shows this one's."""
    words = ["unshare", "--net", "sh", "-c", script, sys.executable, host.source("network")]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=PATIENCE)
    return network.parse(json.loads(done.stdout))


@pytest.mark.skipif(bool(NEEDS) or os.geteuid() != 0, reason=f"wants root and {NEEDS}")
def test_real_interfaces_are_told_with_their_kind_state_and_addresses() -> None:
    found = of_namespace(INSIDE)

    told = {one.name: (one.kind, one.running, one.default, one.master) for one in found.interfaces or ()}
    assert told == {
        "lo": ("loopback", True, False, None),
        "br-0123456789ab": ("docker", True, False, None),
        "eth0": ("virtual", True, True, None),
        "eth1": ("virtual", True, False, "br-0123456789ab"),
        "veth9": ("docker", False, False, None),
        "idle": ("virtual", False, False, None),
    }
    assert {one.name for one in found.interfaces or () if one.outward} == {"eth0", "eth1", "idle"}
    eth0 = found.get("eth0")
    assert eth0 is not None
    assert eth0.addresses is not None
    assert eth0.addresses[0] == "192.0.2.7/24"
    assert set(eth0.reachable) == {"192.0.2.7/24", "2001:db8::7/64"}
    assert not eth0.rdma
    assert eth0.driver is None  # the card of the same name outside is none of its


def test_this_machine_has_a_loopback() -> None:
    before = {name for _, name in socket.if_nameindex()}
    found = network.parse(look_network.answer())
    after = {name for _, name in socket.if_nameindex()}  # other tests make and remove some meanwhile

    loopback = found.get("lo")
    assert loopback is not None
    assert (loopback.kind, loopback.running, loopback.reachable) == ("loopback", True, ())
    assert before & after <= {one.name for one in found.interfaces or ()} <= before | after


def test_what_the_kernel_does_not_tell_is_unknown() -> None:
    refused: dict[str, Any] = {"interfaces": None, "addresses": None, "defaults": [], "error": "Permission denied"}
    silent = {**look_network.answer(), "addresses": None}

    assert network.parse(refused) == Network(None, "Permission denied")
    assert {one.addresses for one in network.parse(silent).interfaces or ()} == {None}


def test_a_name_service_that_hangs_does_not_hide_the_interfaces() -> None:
    answers = {"network": Answer(0, document=look_network.answer()), "own": Answer(None, err="it had not ended")}

    found = network.FACT.parse(answers)

    assert (found.own, found.get("lo") is not None) == (None, True)


def test_the_own_name_leads_somewhere_or_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "localhost")
    assert set(own_address.answer()["addresses"]) & {"127.0.0.1", "::1"}
    monkeypatch.setattr(socket, "gethostname", lambda: "x" * 300)  # too long for any name service
    assert own_address.answer()["addresses"] == []


def test_a_name_service_that_is_away_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    away = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: away.wait(60) and [])
    monkeypatch.setattr(own_address, "SECONDS", 0.05)

    told = own_address.answer()

    away.set()
    assert told["addresses"] is None


@pytest.mark.parametrize("data", [b"", b"\x03", b"\xff\xff\x03\x00abc", b"\x02\x00\x03\x00", b"\x00" * 9])
def test_attributes_that_are_cut_off_end_the_reading(data: bytes) -> None:
    assert look_network.attributes(struct.pack("=HH4s", 8, 3, b"eth0") + data) == {3: b"eth0"}


def test_the_other_end_of_a_link_is_not_its_own_address() -> None:
    def attribute(kind: int, raw: bytes) -> bytes:
        return struct.pack("=HH", 4 + len(raw), kind) + raw

    head = look_network.ADDRESS.pack(socket.AF_INET, 32, 0, 0, 5)
    theirs, ours = (socket.inet_aton(text) for text in ("10.9.0.1", "10.9.0.2"))
    assert look_network.address(head + attribute(1, theirs) + attribute(2, ours)) == (5, "10.9.0.2/32")
    assert look_network.address(head + attribute(1, theirs)) == (5, "10.9.0.1/32")
    assert look_network.address(look_network.ADDRESS.pack(7, 0, 0, 0, 5)) is None


KINDS = [
    ("eno1", 1, "", "ethernet"),
    ("ib0", 32, "", "infiniband"),
    ("ib0.8001", 32, "ipoib", "infiniband"),
    ("bond0", 1, "bond", "bond"),
    ("eno1.5", 1, "vlan", "vlan"),
    ("br0", 1, "bridge", "bridge"),
    ("docker0", 1, "bridge", "docker"),
    ("virbr0", 1, "bridge", "docker"),
    ("cali0ab", 1, "veth", "docker"),
    ("wg0", 65534, "wireguard", "virtual"),
    ("tailscale0", 65534, "tun", "virtual"),
    ("lo", 772, "", "loopback"),
]


@pytest.mark.parametrize(("name", "type_", "kind", "expected"), KINDS)
def test_a_kind_is_told_by_the_kernel_or_by_its_name(name: str, type_: int, kind: str, expected: str) -> None:
    told = {"index": 2, "name": name, "type": type_, "kind": kind, "flags": 0x1043, "state": "up", "mtu": 1500}
    told |= {"master": None, "speed": "-1", "driver": None, "rdma": []}
    (found,) = network.parse({"interfaces": [told], "addresses": [], "defaults": [], "error": ""}).interfaces or ()

    assert (found.kind, found.speed) == (expected, None)


def tree(root: Path, **files: Any) -> Path:
    """Files by their path with / written as __; a dictionary is a folder."""
    for name, content in files.items():
        path = root / name.replace("__", "/")
        if isinstance(content, dict):
            path.mkdir(parents=True, exist_ok=True)
            tree(path, **content)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else f"{content}\n".encode())
    return root


def test_rdma_ports_are_told_with_the_gids_that_are_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = {
        "state": "4: ACTIVE", "phys_state": "5: LinkUp", "link_layer": "Ethernet", "rate": "200 Gb/sec (2X NDR)",
        "gids": {"0": "fe80:0000:0000:0000:0000:0000:0000:0001", "1": look_rdma.EMPTY,
                 "3": "0000:0000:0000:0000:0000:ffff:c000:0201"},
        "gid_attrs": {"types": {"0": "IB/RoCE v1", "3": "RoCE v2"}, "ndevs": {"0": "ens1", "3": "ens1"}},
    }  # fmt: skip
    device = {
        "ports": {"1": port},
        "device": {"numa_node": "-1", "infiniband_verbs": {"uverbs0": {}}, "net": {"ens1": {}}},
    }
    monkeypatch.setattr(look_rdma, "SYS", str(tree(tmp_path / "sys", **{"class/infiniband": {"mlx5_0": device}})))
    monkeypatch.setattr(look_rdma, "DEV", str(tree(tmp_path / "dev", uverbs0="")))

    (found,) = rdma.parse(look_rdma.answer()).ready

    (only,) = found.active
    assert (found.name, found.numa, found.interfaces, only.roce, only.rate) == ("mlx5_0", None, ("ens1",), True, 200.0)
    assert [(gid.index, gid.type, gid.v4, gid.link_local) for gid in only.gids] == [
        (0, "IB/RoCE v1", None, True),
        (3, "RoCE v2", "192.0.2.1", False),
    ]


CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri May 31 09:35:42 UTC 2024"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  595.71.05  Release Build"


@pytest.mark.parametrize(
    ("modules", "driver", "direct"),
    [({}, CLOSED, False), ({"nvidia_peermem": {}}, CLOSED, True), ({}, OPEN, True), ({}, None, True)],
)
def test_whether_cards_reach_gpu_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, modules: dict[str, Any], driver: str | None, direct: bool
) -> None:
    monkeypatch.setattr(look_rdma, "SYS", str(tree(tmp_path / "sys", module=modules, **{"class": {}})))
    proc = tree(tmp_path / "proc", **({"driver/nvidia": {"version": driver}} if driver else {}))
    monkeypatch.setattr(look_rdma, "PROC", str(proc))

    assert rdma.parse(look_rdma.answer()).direct is direct


def test_a_card_without_its_node_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As containers have it: /sys is the host's, /dev is not."""
    device = {"ports": {"1": {"state": "4: ACTIVE"}}, "device": {"infiniband_verbs": {"uverbs0": {}}}}
    monkeypatch.setattr(look_rdma, "SYS", str(tree(tmp_path, **{"class/infiniband": {"mlx5_0": device}})))
    monkeypatch.setattr(look_rdma, "DEV", str(tmp_path / "dev"))

    found = rdma.parse(look_rdma.answer())

    assert (len(found.devices or ()), found.ready) == (1, ())


def test_no_rdma_and_no_sys_are_not_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look_rdma, "SYS", str(tmp_path / "none"))
    assert rdma.parse(look_rdma.answer()).devices is None
    monkeypatch.setattr(look_rdma, "SYS", str(tree(tmp_path, **{"class": {"net": {}}})))
    assert rdma.parse(look_rdma.answer()).devices == ()


def space(*capabilities: tuple[int, int]) -> bytes:
    """A configuration space with extended capabilities, (number, the word at +6), one after the other."""
    data = bytearray(4096)
    for at, (number, control) in enumerate(capabilities):
        place, after = 256 + 16 * at, 256 + 16 * (at + 1) if at + 1 < len(capabilities) else 0
        struct.pack_into("<IHH", data, place, number | 1 << 16 | after << 20, 0x7F, control)
    return bytes(data)


LOOP = space((1, 0), (2, 0))
ACS = [
    (space((1, 0), (0x0D, 0x1D)), 4096, 0x1D),
    (space((0x0D, 0)), 4096, 0),
    (space((1, 0), (2, 0)), 4096, None),
    (space(), 4096, None),
    (space()[:256], 256, None),  # a conventional bridge
    (space((0x0D, 0x1D))[:64], 4096, "unreadable"),  # what others than root are given
    (b"", 4096, "unreadable"),
    (b"\xff" * 4096, 4096, "unreadable"),  # a device that fell off the bus
    (LOOP[:272] + struct.pack("<I", 2 | 1 << 16 | 256 << 20) + LOOP[276:], 4096, None),  # a list that leads back
]


@pytest.mark.parametrize(("data", "size", "expected"), ACS)
def test_acs_is_read_from_the_configuration_space(data: bytes, size: int, expected: object) -> None:
    assert look_iommu.acs(data, size) == expected


def machine(root: Path, config: bytes, group: str | None) -> Path:
    """A GPU behind a bridge, and its sound device."""
    bridge = root / "devices/pci0000:40/0000:40:01.1"
    card = tree(bridge / "0000:41:00.0", vendor="0x10de", **{"class": "0x030200"})
    tree(bridge / "0000:41:00.1", vendor="0x10de", **{"class": "0x040300"})
    tree(bridge, vendor="0x1022", config=config, **{"class": "0x060400"})
    if group:
        tree(root / "kernel/iommu_groups/31", type=group)
        tree(root / "class/iommu/ivhd0", name="")
        (card / "iommu_group").symlink_to(root / "kernel/iommu_groups/31")
    buses = root / "bus/pci/devices"
    buses.mkdir(parents=True)
    for device in (bridge, card, bridge / "0000:41:00.1"):
        (buses / device.name).symlink_to(device)
    return root


WAYS = [
    ("DMA-FQ", space((0x0D, 0x1D)), (True, {"0000:40:01.1": "SrcValid+ ReqRedir+ CmpltRedir+ UpstreamFwd+"}, ())),
    ("identity", space((0x0D, 0x11)), (False, {}, ())),
    (None, space((1, 0)), (False, {}, ())),
    ("DMA", space((1, 0))[:256], (True, {}, ())),
]


@pytest.mark.parametrize(("group", "config", "expected"), WAYS)
def test_what_lies_between_gpus_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: str | None, config: bytes, expected: object
) -> None:
    cpu = "vendor_id\t: AuthenticAMD\nflags\t\t: fpu vme\n"
    proc = tree(tmp_path / "proc", cpuinfo=cpu, cmdline="root=/dev/sda1 iommu=pt quiet")
    monkeypatch.setattr(look_iommu, "SYS", str(machine(tmp_path / "sys", config, group)))
    monkeypatch.setattr(look_iommu, "PROC", str(proc))

    found = iommu.parse(look_iommu.answer())

    assert (found.translating, dict(found.redirecting), found.unreadable) == expected
    assert [path.pci for path in found.gpus or ()] == ["0000:41:00.0"]
    assert (found.vendor, found.guest, found.said) == ("AuthenticAMD", False, ("iommu=pt",))


def test_a_machine_that_shows_no_devices_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look_iommu, "SYS", str(tmp_path))

    found = iommu.parse(look_iommu.answer())

    assert (found.translating, found.gpus) == (None, None)
    assert "shows nothing" in found.error


def test_the_first_file_and_the_first_line_of_nccls_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = (
        tree(tmp_path, own="#NCCL_P2P_DISABLE=1\nNCCL_DEBUG=WARN\nNCCL_DEBUG=INFO\nno line\nNCCL_SOCKET_IFNAME==eth0")
        / "own"
    )
    system = tree(tmp_path, system="NCCL_DEBUG=TRACE\nNCCL_ALGO=Ring") / "system"
    monkeypatch.setattr(look_conf, "SYSTEM", str(system))

    found = nccl_conf.parse(look_conf.answer(str(own)))

    assert found.variables == {
        "NCCL_DEBUG": ("WARN", str(own)),
        "NCCL_SOCKET_IFNAME": ("=eth0", str(own)),
        "NCCL_ALGO": ("Ring", str(system)),
    }
    assert nccl_conf.parse({"files": {"/etc/nccl.conf": None}}).variables == {}  # nor can the server read it
