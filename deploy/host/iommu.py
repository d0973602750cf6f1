"""Whether an IOMMU stands between the GPUs of a machine, and what ACS does at the bridges above them, as JSON.

ACS stands in the extended configuration space of a PCI device (from byte 256 on), which only root may read: then
`acs` is "unreadable". It is null where the bridge has no such capability, else the bits of its control register.
"""

# Sent to hosts as a program: standard library only, Python 3.8 or newer.

from __future__ import annotations

import json
import os
import re
import struct
from typing import Any

from deploy.host.sysfs import listed, word

SYS, PROC = "/sys", "/proc"
DEVICES = "bus/pci/devices"  # below SYS
ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")
NVIDIA, DISPLAY = "0x10de", "0x03"
BASE, SPACE, ACS = 256, 4096, 0x000D  # of the configuration space; the capability's number (PCI Express base, 7.7.11)
WORDS = re.compile(r"iommu|acs|vfio", re.IGNORECASE)


def acs(config: bytes, size: int) -> int | str | None:
    """The control register of ACS in a configuration space of that size, of which so much could be read."""
    if len(config) < size:  # others than root are given 64 bytes
        return "unreadable"
    at, seen = BASE, set()
    while BASE <= at <= size - 8 and at not in seen:
        seen.add(at)
        (header,) = struct.unpack_from("<I", config, at)
        if header == 0xFFFFFFFF:  # the device does not answer
            return "unreadable"
        if header & 0xFFFF == ACS:
            (control,) = struct.unpack_from("<H", config, at + 6)
            return int(control)
        at = (header >> 20) & ~3
    return None


def bridge(name: str) -> int | str | None:
    """What ACS does at a bridge; a conventional one has 256 bytes of configuration, and none."""
    path = f"{SYS}/{DEVICES}/{name}/config"
    try:
        with open(path, "rb", buffering=0) as file:
            return acs(file.read(SPACE), min(SPACE, os.fstat(file.fileno()).st_size))
    except OSError:
        return "unreadable"


def is_gpu(folder: str) -> bool:
    return word(f"{folder}/vendor") == NVIDIA and (word(f"{folder}/class") or "").startswith(DISPLAY)


def gpu(name: str) -> dict[str, Any]:
    """A GPU's IOMMU group, and the bridges above it, the root port first."""
    real = os.path.realpath(f"{SYS}/{DEVICES}/{name}")
    group = os.path.basename(os.path.realpath(f"{real}/iommu_group"))
    above = [part for part in real.split("/")[:-1] if ADDRESS.match(part)]
    return {
        "pci": name,
        "group": group if group.isdigit() else None,
        # "DMA", "DMA-FQ": addresses are translated; "identity": they pass through (kernel 5.11 and newer tell)
        "type": word(f"{real}/iommu_group/type"),
        "bridges": above,
    }


def answer() -> dict[str, Any]:
    processor = word(f"{PROC}/cpuinfo") or ""
    vendor = re.search(r"^vendor_id\s*:\s*(\S+)", processor, re.MULTILINE)
    flags = re.search(r"^flags\s*:(.*)$", processor, re.MULTILINE)
    told: dict[str, Any] = {
        "iommus": None,
        "gpus": None,
        "bridges": {},
        "vendor": vendor.group(1) if vendor else None,
        "machine": os.uname().machine,
        "guest": None if flags is None else "hypervisor" in flags.group(1).split(),
        "said": [each for each in (word(f"{PROC}/cmdline") or "").split() if WORDS.search(each)],
        "error": "",
    }
    names = listed(f"{SYS}/{DEVICES}")
    if not names:  # a container without /sys: nothing was seen of GPUs, which is not "none"
        return {**told, "error": f"{SYS}/{DEVICES} shows nothing"}
    found = [gpu(name) for name in names if is_gpu(f"{SYS}/{DEVICES}/{name}")]
    bridges = sorted({name for one in found for name in one["bridges"]})
    return {
        **told,
        "iommus": listed(f"{SYS}/class/iommu"),
        "gpus": found,
        "bridges": {name: bridge(name) for name in bridges},
    }


if __name__ == "__main__":
    print(json.dumps(answer()))
