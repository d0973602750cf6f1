"""The RDMA devices of a machine: ports, their state, link layer, rate and GIDs, from /sys/class/infiniband, as JSON.

`devices` is [] where the kernel has no RDMA, null where it could not be listed.
"""

# Sent to hosts as a program: standard library only, Python 3.8 or newer.

from __future__ import annotations

import json
import os
from typing import Any

from deploy.host.sysfs import listed, word

SYS, PROC, DEV = "/sys", "/proc", "/dev/infiniband"
IB = "class/infiniband"  # below SYS
EMPTY = "0000:0000:0000:0000:0000:0000:0000:0000"
MOST_GIDS = 256  # a port's table has at most that many


def gids(folder: str) -> list[dict[str, Any]]:
    """The entries that are set: index, GID, its type ("IB/RoCE v1", "RoCE v2"), the interface it came from."""
    found = []
    for index in sorted(int(name) for name in (listed(f"{folder}/gids") or [])[:MOST_GIDS] if name.isdigit()):
        gid = word(f"{folder}/gids/{index}")
        if gid and gid != EMPTY:
            kind, device = word(f"{folder}/gid_attrs/types/{index}"), word(f"{folder}/gid_attrs/ndevs/{index}")
            found.append({"index": index, "gid": gid, "type": kind, "interface": device})
    return found


def port(folder: str, number: int) -> dict[str, Any]:
    return {
        "number": number,
        "state": word(f"{folder}/state"),  # "4: ACTIVE"
        "physical": word(f"{folder}/phys_state"),  # "5: LinkUp"
        "layer": word(f"{folder}/link_layer"),  # "InfiniBand" or "Ethernet"
        "rate": word(f"{folder}/rate"),  # "400 Gb/sec (4X NDR)"
        "gids": gids(folder),
    }


def device(name: str) -> dict[str, Any]:
    folder = f"{SYS}/{IB}/{name}"
    pci = os.path.basename(os.path.realpath(f"{folder}/device"))
    nodes = [f"{DEV}/{verbs}" for verbs in listed(f"{folder}/device/infiniband_verbs") or []]
    return {
        "name": name,
        "pci": pci if ":" in pci else None,
        "numa": word(f"{folder}/device/numa_node"),
        "interfaces": listed(f"{folder}/device/net") or [],
        # containers show the device, and often leave out the node by which it is used
        "usable": any(os.access(node, os.R_OK | os.W_OK) for node in nodes),
        "ports": [port(f"{folder}/ports/{n}", int(n)) for n in listed(f"{folder}/ports") or [] if n.isdigit()],
    }


def answer() -> dict[str, Any]:
    driver = word(f"{PROC}/driver/nvidia/version")
    told: dict[str, Any] = {
        "devices": None,
        "peermem": any(os.path.isdir(f"{SYS}/module/{name}") for name in ("nvidia_peermem", "nv_peer_mem")),
        "open": None if driver is None else "Open Kernel Module" in driver,
        "error": "",
    }
    if not os.path.isdir(f"{SYS}/class"):
        return {**told, "error": f"{SYS} is not mounted"}
    names = listed(f"{SYS}/{IB}")
    if names is None:
        return {**told, "error": f"{SYS}/{IB} may not be listed"}
    return {**told, "devices": [device(name) for name in names]}


if __name__ == "__main__":
    print(json.dumps(answer()))
