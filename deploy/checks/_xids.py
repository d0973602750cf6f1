"""What the codes of the NVIDIA driver's errors mean, and what to do: a table, for whoever judges `facts.kernel`.

Codes and consequences are those of NVIDIA's Xid catalog (docs.nvidia.com/deploy/xid-errors, for Ampere and newer), in
our own words; NVSentinel has it as data (xiderrorsmapping.csv). A code says where it hurt, seldom why.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from deploy.facts.kernel import RECOVERY, RECOVERY_CODE, Kernel, Xid

Weight = Literal["", "WARN", "FAIL"]  # "": a program's own fault, or a note; the GPU is as before

RESET = "end what uses it, then on the host, as root: nvidia-smi --gpu-reset -i {pci} (or reboot it)"
REBOOT = "reboot the host; if it comes again, have the GPU and its slot looked at"
DRAIN = "take it out (CUDA_VISIBLE_DEVICES), and have it replaced"
LINK = "look at nvidia-smi nvlink --status, then reset the GPUs that share it, and restart nvidia-fabricmanager"
UPDATE = "update the driver, and its firmware"
WATCH = "if it comes again, have the GPU looked at"


@dataclass(frozen=True)
class Meaning:
    """`what` happened, how it weighs as long as nobody mended it, and what to do."""

    what: str
    weight: Weight
    remedy: str = ""


def _each(codes: Iterable[int], meaning: Meaning) -> dict[int, Meaning]:
    return dict.fromkeys(codes, meaning)


PROGRAM = Meaning("a program did something that the GPU refused", "")
XIDS: Mapping[int, Meaning] = MappingProxyType(
    {
        8: Meaning("the GPU did not get on with a program's work", ""),
        13: Meaning("a program's kernel failed: an illegal instruction or address", ""),
        31: Meaning("a program used an address that is not its own", ""),
        32: Meaning("a program's commands arrived spoilt, perhaps by the PCIe link", "WARN", WATCH),
        43: Meaning("a program's channel was reset after its own fault", ""),
        45: Meaning("a program was ended with work under way", ""),
        46: Meaning("the GPU stopped working", "FAIL", RESET),
        48: Meaning("memory had an error of two bits, which ECC cannot correct", "FAIL", RESET),
        54: Meaning("a power cable is not connected, or not whole", "FAIL", "look at the GPU's power cables"),
        57: Meaning("the link to the GPU's memory could not be trained", "FAIL", DRAIN),
        58: Meaning("the GPU's memory failed", "FAIL", DRAIN),
        61: Meaning("the power controller in the GPU stumbled", "WARN", RESET),
        62: Meaning("the power controller in the GPU stopped", "FAIL", RESET),
        63: Meaning("a row of memory is marked for replacement, at the next reset", "WARN", RESET),
        64: Meaning("a row of memory could not be marked for replacement", "FAIL", DRAIN),
        74: Meaning("an NVLink failed", "FAIL", LINK),
        78: Meaning("a vGPU could not be started", "WARN", UPDATE),
        79: Meaning("the GPU fell off the bus: it does not answer over PCIe any more", "FAIL", REBOOT),
        92: Meaning("memory has many errors of one bit", "WARN", WATCH),
        93: Meaning("the GPU's own log of errors is worn out", "WARN", WATCH),
        94: Meaning("memory had an error that cost one program alone", "WARN", RESET),
        95: Meaning("memory had an error that may have spoilt every program", "FAIL", RESET),
        109: Meaning("the GPU could not switch between programs", "FAIL", RESET),
        110: Meaning("the GPU refused an access for security", "FAIL", RESET),
        119: Meaning("the GPU's firmware (GSP) did not answer the driver", "FAIL", RESET),
        120: Meaning("the GPU's firmware (GSP) failed", "FAIL", RESET),
        121: Meaning("the link between processor and GPU corrected an error", "WARN", WATCH),
        136: Meaning("an NVLink could not be trained", "FAIL", LINK),
        137: Meaning("a program used memory of another GPU that is not its own", ""),
        140: Meaning("memory had an error that ECC cannot correct", "FAIL", RESET),
        143: Meaning("the GPU could not be started", "FAIL", RESET),
        151: Meaning("a key of confidential computing could not be changed", "FAIL", "restart the virtual machine"),
        155: Meaning("an NVLink is down", "FAIL", LINK),
        156: Meaning("a broken part is marked as out of use, at the next reset", "WARN", RESET),
        157: Meaning("a broken part could not be marked as out of use", "FAIL", DRAIN),
        158: Meaning("the GPU did not answer in time", "FAIL", RESET),
        160: Meaning("a channel of memory is marked as out of use, at the next reboot", "WARN", REBOOT),
        161: Meaning("a channel of memory could not be marked as out of use", "FAIL", DRAIN),
        **_each([14, 37, 38, 44, 66, 67, 106, 107, 141, 152, 153], Meaning("a note of the driver's", "")),
        **_each([11, 25, 39, 40, 41, 60, 69, 70, 71, 72, 75, 76, 77, 80, 85, *range(126, 136)], PROGRAM),
        **_each([68, 82, 83, 84, 86, 88, 89, *range(96, 106), 139], PROGRAM),  # video and images
        **_each(range(122, 126), Meaning("the GPU's flash memory could not be read or written", "WARN", WATCH)),
        **_each(range(144, 151), Meaning("an NVLink failed", "FAIL", LINK)),
    }
)
UNKNOWN = Meaning("an error that is not in our table", "WARN", "look it up in NVIDIA's Xid catalog")
SWITCH = Meaning("a NVSwitch reports an error", "WARN", LINK)
# Words of RECOVERY, which is the driver's own verdict over what went before.
WORDS: Mapping[str, str] = MappingProxyType({"reboot": REBOOT, "reset": RESET, "flr": RESET, "drain": DRAIN})


def meaning(xid: Xid) -> Meaning:
    """What it means. Of a switch, "Fatal" among its words is the driver's own verdict."""
    if xid.switch:
        fatal = "fatal" in xid.said.lower() and "non-fatal" not in xid.said.lower()
        return Meaning(SWITCH.what, "FAIL" if fatal else SWITCH.weight, SWITCH.remedy)
    recovery = RECOVERY.search(xid.said) if xid.code == RECOVERY_CODE else None
    if recovery:
        known = (remedy for word, remedy in WORDS.items() if word in recovery["words"].lower())
        return Meaning(f"the driver asks for: {recovery['words']}", "FAIL", next(known, RESET))
    return XIDS.get(xid.code, UNKNOWN)


def weighed(kernel: Kernel) -> Iterator[tuple[Xid, Meaning]]:
    """Those that still matter: no program's fault, and nothing that its driver calls mended since."""
    for xid in kernel.standing:
        found = meaning(xid)
        if found.weight:
            yield xid, found
