"""Which TCP ports are listened on in this host's network, and by which processes, as JSON."""

# Sent to hosts as a program: standard library only, Python 3.8 or newer.

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any, Iterator  # noqa: UP035 - Python 3.8

LISTEN = "0A"


def parse_address(text: str) -> tuple[str, int]:
    """(address, port) of a column of /proc/net/tcp: 32-bit words in this machine's own byte order."""
    words, _, port = text.partition(":")
    raw = bytes.fromhex(words)
    if sys.byteorder == "little":
        raw = b"".join(raw[i : i + 4][::-1] for i in range(0, len(raw), 4))
    family = socket.AF_INET if len(raw) == 4 else socket.AF_INET6
    return socket.inet_ntop(family, raw), int(port, 16)


def parse_table(text: str) -> Iterator[dict[str, Any]]:
    """The listening sockets in the text of /proc/net/tcp or tcp6."""
    for line in text.splitlines()[1:]:
        fields = line.split()
        if fields[3] == LISTEN:
            address, port = parse_address(fields[1])
            yield {"address": address, "port": port, "uid": int(fields[7]), "inode": int(fields[9])}


def holders(wanted: set[int]) -> dict[int, list[int]]:
    """{inode: pids that have it open}, as far as we may look."""
    found: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        for inode in wanted & open_sockets(name) if name.isdigit() else ():
            found.setdefault(inode, []).append(int(name))
    return found


def open_sockets(pid: str) -> set[int]:
    """The inodes of its sockets; none where it is gone, or another user's."""
    found: set[int] = set()
    try:
        handles = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return found
    for handle in handles:
        try:
            target = os.readlink(f"/proc/{pid}/fd/{handle}")
        except OSError:  # closed meanwhile
            continue
        if target.startswith("socket:["):
            found.add(int(target[8:-1]))
    return found


def listening() -> list[dict[str, Any]]:
    """Every listening socket; `pids` is None where nobody could be seen to have it open."""
    found: list[dict[str, Any]] = []
    for name in ("tcp", "tcp6"):
        try:
            found += parse_table(Path("/proc/self/net", name).read_text())
        except FileNotFoundError:  # a kernel without IPv6
            continue
    owners = holders({entry["inode"] for entry in found})
    for entry in found:
        entry["pids"] = owners.get(entry.pop("inode"))
    return found


answer = listening

if __name__ == "__main__":
    print(json.dumps(answer()))
