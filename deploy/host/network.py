"""The network interfaces of this network namespace, their addresses and the default routes, from the kernel, as JSON.

By rtnetlink, since `ip` need not be there, and /sys may show another namespace's; of /sys only what is of the same
interface: speed, driver, RDMA devices. `interfaces` and `addresses` are null where the kernel did not tell them.
"""

# Sent to hosts as a program: standard library only, Python 3.8 or newer.

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from typing import Any

from deploy.host.sysfs import linked, listed, word

NET, ROUTES = "/sys/class/net", "/proc/net"
SECONDS = 5.0  # for a dump
HEADER = struct.Struct("=IHHII")  # struct nlmsghdr
LINK = struct.Struct("=BxHiII")  # struct ifinfomsg
ADDRESS = struct.Struct("=BBBBI")  # struct ifaddrmsg
# include/uapi/linux/rtnetlink.h, netlink.h, if_link.h, if_addr.h
GETLINK, GETADDR, DUMP, FAILED, DONE = 18, 22, 0x301, 2, 3
HARDWARE, IFNAME, MTU, MASTER, OPERSTATE, LINKINFO, INFO_KIND = 1, 3, 4, 10, 16, 18, 1
IFA_ADDRESS, IFA_LOCAL = 1, 2  # of a point-to-point link, the first is the other end's
STATES = ("unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up")


def dump(kind: int, body: bytes) -> Iterator[bytes]:
    """The bodies of the answers to a request for all of a kind. OSError where the kernel refuses."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
        netlink.settimeout(SECONDS)
        netlink.send(HEADER.pack(HEADER.size + len(body), kind, DUMP, 1, 0) + body)
        while True:
            data = netlink.recv(1 << 18)
            while len(data) >= HEADER.size:
                length, what = HEADER.unpack_from(data)[:2]
                if what == FAILED or length < HEADER.size:
                    raise OSError("the kernel does not list them")
                if what == DONE:
                    return
                yield data[HEADER.size : length]
                data = data[(length + 3) & ~3 :]


def attributes(data: bytes) -> dict[int, bytes]:
    """A message's attributes by their number; what is cut off is left out."""
    found = {}
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        if length < 4 or length > len(data):
            break
        found[kind & 0x3FFF] = data[4:length]
        data = data[(length + 3) & ~3 :]
    return found


def text(raw: bytes) -> str:
    return raw.rstrip(b"\0").decode("utf-8", "replace")


def number(raw: bytes | None) -> int | None:
    return int.from_bytes(raw, "little" if struct.pack("=H", 1)[0] else "big") if raw else None


def link(message: bytes) -> dict[str, Any]:
    _, kind, index, flags, _ = LINK.unpack_from(message)
    told = attributes(message[LINK.size :])
    state = told.get(OPERSTATE, b"\0")[0]
    name = text(told.get(IFNAME, b""))
    own = ":".join(f"{byte:02x}" for byte in told.get(HARDWARE, b""))
    shown = (word(f"{NET}/{name}/ifindex"), word(f"{NET}/{name}/address") or "") == (str(index), own)
    return {
        "index": index,
        "name": name,
        "type": kind,  # ARPHRD_*, include/uapi/linux/if_arp.h
        "flags": flags,
        "state": STATES[state] if state < len(STATES) else "unknown",
        "mtu": number(told.get(MTU)),
        "master": number(told.get(MASTER)),
        # "bridge", "bond", "vlan", "veth", ...; cards have none
        "kind": text(attributes(told.get(LINKINFO, b"")).get(INFO_KIND, b"")),
        "speed": word(f"{NET}/{name}/speed") if shown else None,  # Mbit/s; -1: not known
        "driver": linked(f"{NET}/{name}/device/driver") if shown else None,
        "rdma": (listed(f"{NET}/{name}/device/infiniband") or []) if shown else [],
    }


def address(message: bytes) -> tuple[int, str] | None:
    family, prefix, _, _, index = ADDRESS.unpack_from(message)
    told = attributes(message[ADDRESS.size :])
    raw = told.get(IFA_LOCAL, told.get(IFA_ADDRESS, b""))
    if len(raw) != {socket.AF_INET: 4, socket.AF_INET6: 16}.get(family):
        return None
    return index, f"{socket.inet_ntop(family, raw)}/{prefix}"


def addresses() -> list[tuple[int, str]] | None:
    try:
        found = [address(one) for one in dump(GETADDR, ADDRESS.pack(0, 0, 0, 0, 0))]
    except (OSError, struct.error):
        return None
    return [one for one in found if one]


def defaults() -> list[str]:
    """The interfaces with a default route of either family."""
    found = set()
    for line in (word(f"{ROUTES}/route") or "").splitlines()[1:]:
        cells = line.split()
        if len(cells) > 7 and cells[1] == cells[7] == "00000000":
            found.add(cells[0])
    for line in (word(f"{ROUTES}/ipv6_route") or "").splitlines():
        cells = line.split()
        # the kernel has an unreachable default on lo that is no way out
        if len(cells) > 9 and cells[0] == "0" * 32 and cells[1] == "00" and cells[9] != "lo":
            found.add(cells[9])
    return sorted(found)


def answer() -> dict[str, Any]:
    try:
        interfaces = [link(one) for one in dump(GETLINK, LINK.pack(0, 0, 0, 0, 0))]
    except (OSError, struct.error) as error:
        return {"interfaces": None, "addresses": None, "defaults": [], "error": str(error)}
    return {"interfaces": interfaces, "addresses": addresses(), "defaults": defaults(), "error": ""}


if __name__ == "__main__":
    print(json.dumps(answer()))
