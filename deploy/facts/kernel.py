"""What the kernel of a host said of broken GPUs, and whom it killed for want of memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deploy.facts import Fact, told_by

# "NVRM: Xid (PCI:0000:41:00): 79, pid=1234, name=python3, GPU has fallen off the bus."; pid and name may be '<unknown>'
# in quotes or not, or missing (before R450), and "PCI:" too (before R410). SXid are a NVSwitch's.
XID = re.compile(
    r"\b(?P<switch>S)?Xid \((?:PCI:)?(?P<pci>[0-9A-Fa-f:.]+)\): (?P<code>\d+)"
    r"(?:, pid='?(?P<pid>\d+|<unknown>)'?)?(?:, name='?(?P<name>[^,']*)'?)?,? ?(?P<said>.*)"
)
KILLED = re.compile(r"\bKilled process (?P<pid>\d+) \((?P<name>.*?)\)(?P<rest>.*)")
IN_GROUP = "Memory cgroup out of memory"
RSS = re.compile(r"\b(?:anon|file|shmem)-rss:(\d+)kB")
# nvidia.ko since R555, when what would mend a GPU changes: "GPU recovery action changed from 0x0 (None) to 0x2 (Node
# Reboot Required)"; R610 says "OS Reboot"
RECOVERY = re.compile(r"GPU recovery action changed from \S+ \(.*?\) to (?P<action>\S+) \((?P<words>.*?)\)")
RECOVERY_CODE = 154


@dataclass(frozen=True)
class Xid:
    """One error that the driver of a GPU, or of a NVSwitch, wrote into the kernel's log."""

    code: int
    pci: str  # as `slot` writes it
    said: str  # its words, without pid and name
    at: float | None  # the host's clock, seconds since 1970; None: the kernel's log has no times
    pid: int | None = None  # in the kernel's own numbering: not ours in a container
    name: str | None = None
    switch: bool = False  # a SXid, whose codes are others

    def __str__(self) -> str:
        whose = f", pid {self.pid} ({self.name})" if self.pid is not None else ""
        return f"{'SXid' if self.switch else 'Xid'} {self.code} of {self.pci}{whose}: {self.said}"


@dataclass(frozen=True)
class Kill:
    """A process that the kernel ended because memory had run out."""

    pid: int
    name: str  # at most 15 bytes
    at: float | None  # as in `Xid`
    group: bool  # its control group's memory had, not the host's
    memory: int | None  # bytes that it held

    def __str__(self) -> str:
        held = f", which held {self.memory / (1 << 30):.1f} GiB" if self.memory is not None else ""
        why = "the memory of its control group" if self.group else "memory"
        return f"process {self.pid} ({self.name}){held}, for want of {why}"


@dataclass(frozen=True)
class Kernel:
    """What its log still says; None: the log cannot be read, and `error` says why."""

    xids: tuple[Xid, ...] | None
    kills: tuple[Kill, ...] | None
    since: float | None  # how far back the log goes, on the host's clock; None: it has no times
    booted: float  # the same clock
    now: float
    error: str = ""

    @property
    def standing(self) -> tuple[Xid, ...]:
        """The Xids of each GPU since the driver last said that nothing has to be done to it any more."""
        kept: list[Xid] = []
        for xid in self.xids or ():
            recovery = RECOVERY.search(xid.said) if xid.code == RECOVERY_CODE and not xid.switch else None
            if recovery and recovery["action"] == "0x0":
                kept = [one for one in kept if one.pci != xid.pci]
            else:
                kept.append(xid)
        return tuple(kept)

    def ago(self, at: float | None) -> str:
        """When that was, in words."""
        if at is None:
            return "some time since the boot"
        seconds = max(0.0, self.now - at)
        for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
            if seconds >= 2 * size:
                return f"{seconds / size:.0f} {unit} ago"
        return f"{seconds:.0f} s ago"


def slot(bus_id: str) -> str:
    """A PCI address as `Xid.pci` has it, "0000:41:00", whoever wrote it: nvidia-smi says 00000000:41:00.0.

    ValueError where it is none.
    """
    *domain, bus, device = bus_id.lower().partition(".")[0].split(":")
    return f"{int(domain[0] if domain else '0', 16):04x}:{int(bus, 16):02x}:{int(device, 16):02x}"


def parse(told: Mapping[str, Any]) -> Kernel:
    """From what `deploy.host.kernel_log` says."""
    error = str(told["error"])
    xids: list[Xid] = []
    kills: list[Kill] = []
    for at, words in told["lines"]:
        if found := XID.search(words):
            xids.append(_xid(found, at))
        elif found := KILLED.search(words):
            rss = RSS.findall(found["rest"])
            memory = sum(map(int, rss)) << 10 if rss else None
            kills.append(Kill(int(found["pid"]), found["name"], at, IN_GROUP in words, memory))
    seen = not error
    return Kernel(
        tuple(xids) if seen else None, tuple(kills) if seen else None, told["since"], told["booted"], told["now"], error
    )


def _xid(found: re.Match[str], at: float | None) -> Xid:
    pid = int(found["pid"]) if (found["pid"] or "").isdecimal() else None
    name = None if found["name"] in (None, "", "<unknown>") else found["name"]
    return Xid(int(found["code"]), slot(found["pci"]), found["said"], at, pid, name, found["switch"] is not None)


FACT: Fact[Kernel] = told_by("kernel_log", parse, name="kernel")
