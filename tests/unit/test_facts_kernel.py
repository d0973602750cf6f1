"""What the kernel says of broken GPUs and killed processes, in the words of several drivers and kernels."""

from __future__ import annotations

import re

import pytest

from deploy.checks import _xids
from deploy.facts import kernel
from deploy.facts.kernel import Kernel, Kill, Xid
from deploy.host import kernel_log

NOW, BOOTED = 1_796_000_000.0, 1_795_990_000.0
FIRST, SECOND = "0000:41:00", "0000:c1:00"


def heard(*lines: tuple[float | None, str], error: str = "") -> Kernel:
    told = {"lines": lines, "left_off": 0, "since": BOOTED, "booted": BOOTED, "now": NOW, "error": error}
    return kernel.parse(told)


def xid(code: int, said: str = "", pci: str = FIRST) -> tuple[float, str]:
    return NOW, f"NVRM: Xid (PCI:{pci}): {code}, {said}"


XIDS = [
    (
        "NVRM: Xid (PCI:0000:41:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        Xid(79, FIRST, "GPU has fallen off the bus.", NOW),
    ),
    (
        "NVRM: Xid (PCI:0000:41:00): 31, pid=2280636, name=python3, Ch 00000008, intr 00000000. MMU Fault",
        Xid(31, FIRST, "Ch 00000008, intr 00000000. MMU Fault", NOW, 2280636, "python3"),
    ),
    ("NVRM: Xid (0000:41:00): 13, 0005 0000502d 00000104", Xid(13, FIRST, "0005 0000502d 00000104", NOW)),
    (
        "NVRM: Xid (PCI:0008:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
        Xid(154, "0008:01:00", "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", NOW),
    ),
    (
        "nvidia-nvswitch0: SXid (PCI:0000:C1:00.0): 11001, Fatal, Link 46 ingress invalid command",
        Xid(11001, SECOND, "Fatal, Link 46 ingress invalid command", NOW, switch=True),
    ),
]
KILLS = [
    (
        "Out of memory: Killed process 41 (sglang::schedul) total-vm:9kB, anon-rss:2097152kB, file-rss:1024kB, UID:0",
        Kill(41, "sglang::schedul", NOW, group=False, memory=(2 << 30) + (1 << 20)),
    ),
    (
        "Memory cgroup out of memory: Killed process 7 (a (b) c) total-vm:9kB, anon-rss:4kB, file-rss:0kB",
        Kill(7, "a (b", NOW, group=True, memory=4096),
    ),
    ("Killed process 12 (python), UID 1000, total-vm:9kB", Kill(12, "python", NOW, group=False, memory=None)),
]


@pytest.mark.parametrize(("line", "found"), XIDS)
def test_an_error_of_the_driver_is_read(line: str, found: Xid) -> None:
    assert kernel_log.TOLD.search(line)
    assert heard((NOW, line)).xids == (found,)


@pytest.mark.parametrize(("line", "found"), KILLS)
def test_a_killed_process_is_read(line: str, found: Kill) -> None:
    assert kernel_log.TOLD.search(line)
    assert heard((NOW, line)).kills == (found,)


@pytest.mark.parametrize(
    "line", ["NVRM: loading NVIDIA UNIX Open Kernel Module", "audit: Xids (1)", "oom_reaper: reaped process 41 (x)"]
)
def test_other_lines_are_left_on_the_host(line: str) -> None:
    assert not kernel_log.TOLD.search(line)


def test_a_log_that_may_not_be_read_is_not_one_that_is_silent() -> None:
    assert (heard().xids, heard().kills) == ((), ())
    unread = heard(error="Operation not permitted")
    assert (unread.xids, unread.kills, list(_xids.weighed(unread))) == (None, None, [])


@pytest.mark.parametrize(
    ("line", "when"),
    [
        ("<6>[   12.500000] usb 1-1: new device", BOOTED + 12.5),
        ("<3>[ 9000.000001][  T123] NVRM: Xid (PCI:0000:41:00): 79, x", BOOTED + 9000.000001),
        ("<6>no stamp at all", None),
    ],
)
def test_the_ring_s_stamps_become_times(line: str, when: float | None) -> None:
    [(at, words)] = kernel_log.of_ring([line], BOOTED)
    assert (at, words) == (when and pytest.approx(when), re.sub(r"^(<\d+>)?(\[ *[\d.]+\])?(\[ *T\d+\])? ?", "", line))


def test_the_journal_is_read_with_its_times() -> None:
    text = (
        "1796000000.250000 gpu1 kernel: NVRM: Xid (PCI:0000:41:00): 79, pid=1, name=x, GPU has fallen off the bus.\n"
        "-- Boot 0123456789abcdef --\n"
        "1796000001.000000 gpu1 systemd[1]: Started x.\n"
    )
    assert [at for at, _ in kernel_log.of_journal(text)] == [1796000000.25]


@pytest.mark.parametrize(
    ("bus_id", "slot"),
    [("00000000:41:00.0", FIRST), ("0000:C1:00", SECOND), ("c1:00.0", SECOND), ("00000008:01:00.0", "0008:01:00")],
)
def test_addresses_are_the_same_whoever_writes_them(bus_id: str, slot: str) -> None:
    assert kernel.slot(bus_id) == slot


RECOVERED = "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
BROKEN = "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"


@pytest.mark.parametrize(
    ("lines", "weighed"),
    [
        ([xid(13), xid(31), xid(43), xid(45), xid(63)], [(63, "WARN")]),  # but the last, programs' own faults
        ([xid(79)], [(79, "FAIL")]),
        ([xid(79), xid(154, BROKEN)], [(79, "FAIL"), (154, "FAIL")]),
        ([xid(119), xid(154, RECOVERED)], []),
        ([xid(154, RECOVERED), xid(119)], [(119, "FAIL")]),
        ([xid(119), xid(119, pci=SECOND), xid(154, RECOVERED)], [(119, "FAIL")]),
        ([xid(999)], [(999, "WARN")]),
        ([(NOW, "nvidia-nvswitch0: SXid (PCI:0000:41:00.0): 11001, Fatal, Link 46")], [(11001, "FAIL")]),
        ([(NOW, "nvidia-nvswitch0: SXid (PCI:0000:41:00.0): 12028, Non-fatal, Link 46")], [(12028, "WARN")]),
    ],
)
def test_what_still_matters_is_weighed(lines: list[tuple[float, str]], weighed: list[tuple[int, str]]) -> None:
    found = list(_xids.weighed(heard(*lines)))
    assert [(one.code, meaning.weight) for one, meaning in found] == weighed
    assert all(meaning.what and meaning.remedy for _, meaning in found)


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("Node Reboot Required", "reboot"), ("OS Reboot", "reboot"), ("GPU Reset Required", "reset"),
        ("PF FLR", "reset"), ("Drain and Reset", "reset"), ("Drain P2P", "take it out"),
    ],
)  # fmt: skip
def test_the_driver_s_own_remedy_is_taken(words: str, remedy: str) -> None:
    said = f"GPU recovery action changed from 0x0 (None) to 0x9 ({words})"
    [(_, found)] = _xids.weighed(heard(xid(154, said)))
    assert words in found.what
    assert remedy in found.remedy


def test_every_meaning_that_weighs_has_a_remedy() -> None:
    assert not [code for code, meaning in _xids.XIDS.items() if meaning.weight and not meaning.remedy]


@pytest.mark.parametrize(("at", "words"), [(NOW - 30, "30 s ago"), (NOW - 7300, "2 hours ago"), (None, "some time")])
def test_times_are_told_by_their_age(at: float | None, words: str) -> None:
    assert heard().ago(at).startswith(words)


def test_this_machine_answers() -> None:
    found = kernel.parse(kernel_log.answer())
    assert (found.xids is None) == bool(found.error)
    assert found.booted < found.now
