"""The network interfaces of a machine as the kernel shows them, raw, as JSON: /sys/class/net, rtnetlink, the routes.

`interfaces` is null where /sys/class/net cannot be listed, `addresses` null where the kernel did not tell them.
"""

# Sent to hosts as a program: standard library only, Python 3.8 or newer.

from __future__ import annotations

import json
import os
import socket
import struct
from typing import Any

from deploy.host.sysfs import linked, listed, word

NET, ROUTES = "/sys/class/net", "/proc/net"
HEADER = struct.Struct("=IHHII")  # struct nlmsghdr
ADDRESS = struct.Struct("=BBBBI")  # struct ifaddrmsg
GETADDR, DUMP, DONE, FAILED = 22, 0x301, 3, 2  # RTM_GETADDR, NLM_F_REQUEST | NLM_F_DUMP, NLMSG_DONE, NLMSG_ERROR
IFA_ADDRESS, IFA_LOCAL = 1, 2  # of a point-to-point link, ADDRESS is the other end's
DUMP_SECONDS = 5.0
MOST = 4096  # interfaces: a host of containers has hundreds


def interface(name: str) -> dict[str, Any]:
    folder = f"{NET}/{name}"
    event = dict(line.partition("=")[::2] for line in (word(f"{folder}/uevent") or "").splitlines())
    return {
        "name": name,
        "type": word(f"{folder}/type"),  # ARPHRD_*, include/uapi/linux/if_arp.h
        "flags": word(f"{folder}/flags"),
        "state": word(f"{folder}/operstate"),
        "speed": word(f"{folder}/speed"),  # Mbit/s; -1: not known
        "mtu": word(f"{folder}/mtu"),
        "devtype": event.get("DEVTYPE"),
        "device": os.path.exists(f"{folder}/device"),
        "driver": linked(f"{folder}/device/driver"),
        "master": linked(f"{folder}/master"),
        "bridge": os.path.isdir(f"{folder}/bridge"),
        "bonding": os.path.isdir(f"{folder}/bonding"),
        "tun": os.path.exists(f"{folder}/tun_flags"),
        "rdma": listed(f"{folder}/device/infiniband") or [],
    }


def addresses() -> dict[str, list[str]] | None:
    """{interface: [address/prefix]} of both families, from the kernel: `ip` need not be there."""
    found: dict[str, list[str]] = {}
    ask = HEADER.pack(HEADER.size + ADDRESS.size, GETADDR, DUMP, 1, 0) + ADDRESS.pack(0, 0, 0, 0, 0)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
            netlink.settimeout(DUMP_SECONDS)
            netlink.send(ask)
            while not took(netlink.recv(1 << 17), found):
                pass
    except (OSError, struct.error):
        return None
    return found


def took(data: bytes, found: dict[str, list[str]]) -> bool:
    """Put one datagram's addresses into `found`; whether the dump has ended. OSError where the kernel refused."""
    while len(data) >= HEADER.size:
        length, kind = HEADER.unpack_from(data)[:2]
        if kind == FAILED:
            raise OSError("the kernel refused to list addresses")
        if kind == DONE or length < HEADER.size:
            return True
        one(data[HEADER.size : length], found)
        data = data[(length + 3) & ~3 :]
    return False


def one(message: bytes, found: dict[str, list[str]]) -> None:
    family, prefix, _, _, index = ADDRESS.unpack_from(message)
    if family not in (socket.AF_INET, socket.AF_INET6):
        return
    told, rest = {}, message[ADDRESS.size :]
    while len(rest) >= 4:
        length, kind = struct.unpack_from("=HH", rest)
        if length < 4:
            break
        told[kind] = rest[4:length]
        rest = rest[(length + 3) & ~3 :]
    raw = told.get(IFA_LOCAL, told.get(IFA_ADDRESS))
    if raw:
        try:
            found.setdefault(socket.if_indextoname(index), []).append(f"{socket.inet_ntop(family, raw)}/{prefix}")
        except (OSError, ValueError):  # gone meanwhile
            return


def defaults() -> list[str]:
    """The interfaces with a default route of either family."""
    found = []
    for line in (word(f"{ROUTES}/route") or "").splitlines()[1:]:
        cells = line.split()
        if len(cells) > 7 and cells[1] == cells[7] == "00000000":
            found.append(cells[0])
    for line in (word(f"{ROUTES}/ipv6_route") or "").splitlines():
        cells = line.split()
        # the kernel has an unreachable default on lo that is no way out
        if len(cells) > 9 and cells[0] == "0" * 32 and cells[1] == "00" and cells[9] != "lo":
            found.append(cells[9])
    return sorted(set(found))


def answer() -> dict[str, Any]:
    names = listed(NET)
    if not names:  # there is always a loopback where /sys is mounted
        return {"interfaces": None, "addresses": None, "defaults": [], "error": f"{NET} shows nothing"}
    shown = [name for name in names if os.path.isdir(f"{NET}/{name}")][:MOST]
    return {
        "interfaces": [interface(name) for name in shown],
        "addresses": addresses(),
        "defaults": defaults(),
        "error": "",
    }


if __name__ == "__main__":
    print(json.dumps(answer()))
