"""The GPUs of a host: as many as the node takes, of one model, sound, at full speed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from deploy.checks import Case, _gpu_rules, _xids
from deploy.checks._words import counted
from deploy.facts import gpu_health, gpus, kernel
from deploy.facts.gpu_health import Health
from deploy.facts.gpus import Gpu, Gpus
from deploy.facts.kernel import Kernel
from deploy.findings import Finding
from deploy.ownership import visible
from deploy.ownership.visible import Taken

MISSING = "look for the others in lspci, and at dmesg for Xid 79"
HANGS = "the driver hangs: look at dmesg for Xid lines and for nvidia-smi in state D; it mostly takes a reboot"
SEEN_AT_REST = 1024  # MiB that drivers and contexts may keep of a GPU that nobody uses


def check(case: Case) -> Iterator[Finding]:
    """Enough of them, all of them answer, and none of those that are taken is ill."""
    found = case.facts[gpus.FACT]
    if case.node and not case.node.gpus:
        return
    if found.all is None:
        yield from _unseen(case, found)
        return
    taken = visible.of(case.node, found.all) if case.node else Taken(found.all)
    told = [*_counted(case, found, taken), *_sound(case, found, taken)]
    yield from told
    if not any(finding.verdict in ("FAIL", "UNKNOWN") for finding in told):
        yield Finding("gpus", "PASS", _summary(case, taken))


def _unseen(case: Case, found: Gpus) -> Iterator[Finding]:
    """A host of which nobody expects GPUs may be without; a driver that is there and does not work is told."""
    error = found.error
    if (case.node or case.host.gpus) and gpus.LOST.search(error):
        yield Finding("gpus", "FAIL", "a GPU does not answer, and so none is told", error, _gpu_rules.REBOOT)
    elif case.node or case.host.gpus:
        remedy = HANGS if "no answer within" in error else "try nvidia-smi there: is the driver loaded?"
        yield Finding("gpus", "UNKNOWN", "the GPUs cannot be seen", error, remedy)
    elif error != gpus.NO_TOOL:
        yield Finding("gpus", "WARN", "the driver does not answer; no GPUs are expected here", error)


def _counted(case: Case, found: Gpus, taken: Taken) -> Iterator[Finding]:
    named = "\n".join(f"{gpu.index} {gpu.name}" for gpu in found.all or ())
    if taken.wrong:
        remedy = "set gpus, or parallel.tp, or CUDA_VISIBLE_DEVICES"
        if found.all and len(found.all) < case.host.gpus:
            remedy = f"the inventory has {case.host.gpus}: {MISSING}; or {remedy}"
        yield Finding("gpus", "FAIL", taken.wrong, named, remedy)
    elif found.all and len(found.all) < case.host.gpus:
        yield Finding(
            "gpus",
            "WARN" if case.node else "FAIL",
            f"{counted(len(found.all), 'GPU')}, of {case.host.gpus} in the inventory",
            named,
            f"{MISSING}; or correct gpus in the inventory",
        )
    if taken.doubt:
        yield Finding("gpus", "WARN", taken.doubt, named, "set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name GPUs by UUID")
    kinds = {(gpu.name, gpu.memory_total_mib) for gpu in taken.gpus if gpu.memory_total_mib is not None}
    if len(kinds) > 1:
        yield Finding(
            "gpus",
            "WARN",
            "the GPUs are not alike: the slowest sets the pace, the smallest the memory",
            "\n".join(f"{gpu.index} {gpu.name}, {gpu.memory_total_mib} MiB" for gpu in taken.gpus),
            "take GPUs of one model (CUDA_VISIBLE_DEVICES)",
        )


def _sound(case: Case, found: Gpus, taken: Taken) -> Iterator[Finding]:
    healths = case.facts[gpu_health.FACT]
    lost = [gpu for gpu in healths.all or () if gpu.lost]
    if found.error and not lost:
        yield _complaint(found.error, len(found.all or ()) == healths.attached)
    told = {gpu.uuid: gpu for gpu in healths.all or ()}
    ours = [told[gpu.uuid] for gpu in taken.gpus if gpu.uuid in told]
    if len(ours) < len(taken.gpus):
        untold = ", ".join(str(gpu.index) for gpu in taken.gpus if gpu.uuid not in told)
        what, remedy = f"how GPU {untold} is cannot be seen", "try nvidia-smi -q -x there"
        yield Finding("gpus", "UNKNOWN", what, healths.error, remedy)
    yield from _gpu_rules.judged(ours, slices=bool(taken.mig))
    yield from _gpu_rules.odd_slots(ours)
    yield from _others(len(told), lost, ours)
    yield from _reported(case.facts[kernel.FACT], ours)


def _complaint(said: str, all_answer: bool) -> Finding:
    """Words of nvidia-smi beside its rows: of a GPU that has none, or a mere note, or about processes alone."""
    if all_answer:
        what = "all GPUs answer, and nvidia-smi complains, or does not tell who holds their memory"
        return Finding("gpus", "WARN", what, said, "run nvidia-smi on the host, and follow what it says")
    return Finding("gpus", "FAIL", "a GPU does not answer", said, "look at dmesg for Xid lines on the host")


def _others(count: int, lost: Sequence[Health], ours: Sequence[Health]) -> Iterator[Finding]:
    theirs = [gpu for gpu in lost if gpu not in ours]
    if theirs:
        what = f"{_gpu_rules.named(theirs)} of {count}: fell off the bus; this server does without"
        yield Finding("gpus", "WARN", what, remedy="whatever asks the driver is slow until the host is rebooted")


def _reported(log: Kernel, ours: Sequence[Health]) -> Iterator[Finding]:
    """What the kernel's log has of our GPUs, and of the switches between them. A reset need not leave a line there, so
    a GPU for which its driver now wants nothing done may go on.
    """
    slots = {kernel.slot(gpu.bus): gpu for gpu in ours if gpu.bus}
    told: dict[tuple[bool, str, str], list[str]] = {}
    for xid, meaning in _xids.weighed(log):
        if xid.switch or xid.pci in slots:
            fit = not xid.switch and slots[xid.pci].recovery == ""
            group = (fit, meaning.weight, meaning.remedy.format(pci=f"{xid.pci}.0"))
            told.setdefault(group, []).append(f"{xid}, {log.ago(xid.at)}: {meaning.what}")
    for (fit, weight, remedy), lines in told.items():
        since = "asks for no reset now" if fit else "nothing that mended them since"
        yield Finding(
            "gpus",
            "FAIL" if weight == "FAIL" and not fit else "WARN",
            f"the driver reported errors, and {since}",
            "\n".join(lines[-10:]),
            f"if the GPU is not as before: {remedy}" if fit else remedy,
        )


def _summary(case: Case, taken: Taken) -> str:
    """What was seen: models, memory, driver; what is in use; what could not be seen."""
    gpus_ = taken.gpus
    if not gpus_:
        return f"MIG instances {', '.join(taken.mig)}" if taken.mig else "none is wanted"
    healths = case.facts[gpu_health.FACT]
    names = sorted({f"{gpu.name}, {_mib(gpu.memory_total_mib)}" for gpu in gpus_})
    used = [gpu for gpu in gpus_ if (gpu.memory_used_mib or 0) > SEEN_AT_REST]
    told = [
        f"{len(gpus_)} x {' and '.join(names)}",
        f"driver {gpus_[0].driver}, CUDA up to {healths.cuda or 'unknown'}",
    ]
    told += [f"memory in use on GPU {', '.join(_use(gpu) for gpu in used)}"] if used else []
    told += ["the kernel's log cannot be read"] if case.facts[kernel.FACT].xids is None else []
    return "; ".join(told)


def _use(gpu: Gpu) -> str:
    return f"{gpu.index} ({_mib(gpu.memory_used_mib)})"


def _mib(mib: int | None) -> str:
    return "unknown memory" if mib is None else f"{mib / 1024:.0f} GiB"
