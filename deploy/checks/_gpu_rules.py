"""What is wrong with a GPU, as its own driver tells: a table of rules over `facts.gpu_health`.

What may go on and what may not is after NVIDIA's "GPU memory error management" (docs.nvidia.com/deploy, error recovery
and response flags): with rows that wait for their replacement new work may start; where the driver asks for a reset,
not before it. What is not told breaks no rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from deploy.facts.gpu_health import Health
from deploy.findings import Finding

NEAR_C = 5  # degrees below its limit at which a GPU will not keep its clock for long
BUSY = 10  # percent of load from which on its PCIe link must be at full speed: it is slowed down at rest
HEAT = frozenset({"hw_thermal_slowdown", "sw_thermal_slowdown"})
BRAKE = frozenset({"hw_power_brake_slowdown"})
SLOWED = frozenset({"hw_slowdown"})  # said beside the finer ones; boards that have not those say it alone

RESET = "end what uses it, then as root: nvidia-smi --gpu-reset -i {gpus} (or reboot the host)"
REBOOT = "reboot the host, or switch it off and on; if it comes again, have the GPU and its slot looked at (Xid 79)"
REPLACE = "have it replaced; until then leave it out (CUDA_VISIBLE_DEVICES)"


@dataclass(frozen=True)
class Rule:
    """`shows` gives the evidence against one GPU, or nothing."""

    verdict: Literal["WARN", "FAIL"]
    what: str
    shows: Callable[[Health], str | None]
    remedy: str


def _asks(gpu: Health, mild: bool) -> str | None:
    """Only a drain and reset may wait: the GPU works on, with less than it has."""
    return gpu.recovery if gpu.recovery and (gpu.recovery == "Drain and Reset") == mild else None


def _uncorrected(gpu: Health, judged: bool) -> str | None:
    """Newer drivers judge the errors themselves: what they ask for, if anything, is another rule's."""
    if not gpu.uncorrected or (gpu.recovery is not None) != judged:
        return None
    return f"{gpu.uncorrected} since the driver was loaded, {gpu.uncorrected_ever or 'unknown'} in its life"


def _pending(gpu: Health) -> str | None:
    named = {"rows": gpu.remap_pending, "pages": gpu.retired_pending, "a channel or TPC": gpu.repair_pending}
    return ", ".join(what for what, waits in named.items() if waits) or None


def _slowed(gpu: Health, by: frozenset[str], unless: frozenset[str] = frozenset()) -> str | None:
    reasons = gpu.reasons or frozenset()
    if not reasons & by or reasons & unless:
        return None
    told = [f"{gpu.temperature_c} C"] if gpu.temperature_c is not None else []
    told += [f"{gpu.clock_mhz} of {gpu.clock_max_mhz} MHz"] if gpu.clock_mhz and gpu.clock_max_mhz else []
    return ", ".join([*told, *sorted(reasons & by)])


def _near(gpu: Health) -> str | None:
    if gpu.headroom_c is None or gpu.headroom_c > NEAR_C or _slowed(gpu, HEAT):
        return None
    return f"{gpu.temperature_c} C, {gpu.headroom_c} below"


def _below(now: float | None, full: float | None, unit: str) -> str | None:
    return f"{now:g} of {full:g} {unit}" if now is not None and full is not None and now < full else None


def _link(gpu: Health) -> str | None:
    if gpu.pcie_width and gpu.pcie_width_max and gpu.pcie_width < gpu.pcie_width_max:
        return f"{gpu.pcie_width} of {gpu.pcie_width_max} lanes"
    slow = gpu.pcie_gen and gpu.pcie_gen_max and gpu.pcie_gen < gpu.pcie_gen_max
    return f"generation {gpu.pcie_gen} of {gpu.pcie_gen_max}, under load" if slow and (gpu.load or 0) >= BUSY else None


RULES = (
    Rule(
        "FAIL",
        "fell off the bus",
        lambda gpu: "the driver lists it, and it answers nothing" if gpu.lost else None,
        REBOOT,
    ),
    Rule("FAIL", "the driver asks for it to be recovered first", lambda gpu: _asks(gpu, mild=False), RESET),
    Rule("WARN", "less than whole until a reset", lambda gpu: _asks(gpu, mild=True), RESET),
    Rule(
        "FAIL",
        "no spare rows of memory are left",
        lambda gpu: "remapping a row failed" if gpu.remap_failed else None,
        REPLACE,
    ),
    Rule("FAIL", "memory cannot be repaired", lambda gpu: "so says the driver" if gpu.unrepairable else None, REPLACE),
    Rule("FAIL", "memory had errors that ECC could not correct", lambda gpu: _uncorrected(gpu, judged=False), RESET),
    Rule(
        "WARN",
        "memory had errors that ECC could not correct, and the driver goes on without those places",
        lambda gpu: _uncorrected(gpu, judged=True),
        "if they become more, have it looked at",
    ),
    Rule(
        "WARN",
        "SRAM has had more errors than is sound",
        lambda gpu: "NVIDIA's threshold is exceeded" if gpu.sram_worn else None,
        REPLACE,
    ),
    Rule("WARN", "memory waits for the next reset to be replaced by spare", _pending, RESET),
    Rule(
        "WARN",
        "slowed down by heat",
        lambda gpu: _slowed(gpu, HEAT),
        "look at fans, filters, and the temperature of the room",
    ),
    Rule(
        "WARN",
        "slowed down by the power supply",
        lambda gpu: _slowed(gpu, BRAKE),
        "look at the host's power supplies: one may have failed",
    ),
    Rule(
        "WARN",
        "slowed down by its board",
        lambda gpu: _slowed(gpu, SLOWED, HEAT | BRAKE),
        "heat or power: look at nvidia-smi -q -d PERFORMANCE",
    ),
    Rule("WARN", "close to the heat at which it slows down", _near, "look at fans, filters, and what else runs on it"),
    Rule(
        "WARN",
        "limited to less power than the board is made for",
        lambda gpu: _below(gpu.power_limit_w, gpu.power_default_w, "W"),
        "somebody set it; as root: nvidia-smi -i {gpus} -pl WATTS",
    ),
    Rule(
        "WARN",
        "held below the usual clock",
        lambda gpu: _below(gpu.clock_set_mhz, gpu.clock_default_mhz, "MHz"),
        "somebody set it; as root: nvidia-smi -i {gpus} --reset-applications-clocks",
    ),
    Rule("WARN", "less of a PCIe link than there could be", _link, "seat it anew; look at riser, slot and the BIOS"),
    Rule(
        "WARN",
        "persistence mode is off: each first use takes seconds, and settings are lost",
        lambda gpu: "off" if gpu.persistence is False else None,
        "as root: systemctl enable --now nvidia-persistenced, or nvidia-smi -pm 1",
    ),
)
MIG = Rule(
    "FAIL",
    "divided (MIG): a server gets one slice, not the GPU",
    lambda gpu: "MIG is on" if gpu.mig else None,
    "as root: nvidia-smi -i {gpus} -mig 0; or name a slice by its UUID in CUDA_VISIBLE_DEVICES",
)


def named(gpus: Iterable[Health]) -> str:
    """As "GPU 0-3, 6"."""
    runs: list[list[int]] = []
    for index in sorted(gpu.index for gpu in gpus):
        if runs and runs[-1][-1] == index - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return "GPU " + ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def lines(shown: Mapping[Health, str]) -> str:
    """What each shows; those that show the same share a line."""
    alike: dict[str, list[Health]] = {}
    for gpu, evidence in shown.items():
        alike.setdefault(evidence, []).append(gpu)
    return "\n".join(
        f"{named(gpus)}{f' ({gpus[0].bus})' if len(gpus) == 1 else ''}: {evidence}" for evidence, gpus in alike.items()
    )


def judged(gpus: Iterable[Health], slices: bool = False) -> Iterator[Finding]:
    """One finding a rule, with all the GPUs that break it; where slices are wanted, MIG is in its place."""
    found = list(gpus)
    for rule in RULES if slices else (*RULES, MIG):
        shown = {gpu: evidence for gpu in found if (evidence := rule.shows(gpu)) and (rule is RULES[0] or not gpu.lost)}
        if shown:
            numbers = ",".join(str(gpu.index) for gpu in shown)
            what, remedy = f"{named(shown)}: {rule.what}", rule.remedy.format(gpus=numbers)
            yield Finding("gpus", rule.verdict, what, lines(shown), remedy)


def odd_slots(gpus: Iterable[Health]) -> Iterator[Finding]:
    """A slot that is worse than the others of the host, which the GPU in it takes for all that can be had."""
    sound = [gpu for gpu in gpus if gpu.pcie_width_max and gpu.pcie_gen_max and not gpu.lost]
    best = max(((gpu.pcie_gen_max or 0, gpu.pcie_width_max or 0) for gpu in sound), default=(0, 0))
    worse = [gpu for gpu in sound if (gpu.pcie_gen_max, gpu.pcie_width_max) != best]
    if worse:
        most = {
            gpu: f"PCIe {gpu.pcie_gen_max} x{gpu.pcie_width_max} at most, others {best[0]} x{best[1]}" for gpu in worse
        }
        yield Finding(
            "gpus",
            "WARN",
            f"{named(worse)}: in a worse slot than others",
            lines(most),
            "tensor parallelism over PCIe goes at the pace of the slowest: use another slot, or look at the BIOS",
        )
