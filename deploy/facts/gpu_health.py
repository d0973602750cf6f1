"""How the GPUs of a host are: faults of memory and links, heat, power, clocks, and what they say of their fabric.

From `nvidia-smi -q -x`, whose elements differ by driver and board: what a driver does not tell is None here. Names and
values as drivers 535 to 590 wrote them (nvsmi_device_v12.dtd, _v13.dtd) on A100, H100, B200, GB200, L4, RTX PRO 6000.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from deploy.facts import Fact, told_by

LOST = "GPU is lost"
# What stands where a value would: the driver has it not, or will not say.
UNTOLD = ("N/A", "[", "Unknown Error", "Insufficient Permissions", "Requested functionality", "Not Supported", LOST)
NO = frozenset({"No", "Disabled", "False", "Not Active"})
YES = frozenset({"Yes", "Enabled", "True", "Active"})


@dataclass(frozen=True)
class Health:
    """One GPU. None is what it did not tell; no field is made up."""

    index: int  # as nvidia-smi counts
    bus: str  # PCI address, as "00000000:8F:00.0"
    lost: bool  # it has fallen off the bus: the driver lists it, and it answers nothing
    uuid: str | None
    name: str | None
    minor: int | None  # of /dev/nvidiaN
    persistence: bool | None
    virtualization: str | None  # "Pass-Through": a virtual machine's, whose fabric manager runs elsewhere
    mig: bool | None
    mig_pending: bool | None
    recovery: str | None  # what the driver wants done: "" nothing, "Reset", "Reboot", "Drain P2P", "Drain and Reset"
    pcie_gen: int | None  # falls to 1 at rest
    pcie_gen_max: int | None  # of this GPU in this slot
    pcie_width: int | None  # lanes
    pcie_width_max: int | None
    pstate: str | None
    reasons: frozenset[str] | None  # why it is not at full clock now, as "hw_thermal_slowdown", "gpu_idle"
    memory_total_mib: int | None
    memory_used_mib: int | None
    load: int | None  # percent of the last second in which a kernel ran
    ecc: bool | None
    uncorrected: int | None  # errors of memory since the driver was loaded
    uncorrected_ever: int | None
    sram_worn: bool | None  # more of them than NVIDIA takes for sound
    repair_pending: bool | None  # of a channel or TPC: done at the next reset
    unrepairable: bool | None
    retired_pending: bool | None  # pages, on GPUs before Ampere
    remapped: int | None  # rows, for errors that could not be corrected
    remap_pending: bool | None  # rows wait for a reset to be replaced
    remap_failed: bool | None  # no spare rows were left
    temperature_c: int | None
    slow_at_c: int | None  # drivers tell a limit (this one), or how far off it is (the next two)
    margin_c: int | None
    slow_at_margin_c: int | None
    power_w: float | None
    power_limit_w: float | None
    power_default_w: float | None
    clock_mhz: int | None  # of the SMs
    clock_max_mhz: int | None
    clock_set_mhz: int | None  # "applications clocks": what somebody chose
    clock_default_mhz: int | None
    fabric_state: str | None  # "Not Started", "In Progress", "Completed"; None on GPUs without NVSwitch
    fabric_status: str | None  # "Success", or an error of NVML's
    fabric_health: str | None  # "Healthy", "Unhealthy", "Limited Capacity"
    fabric_bandwidth: str | None  # "Full", "Degraded"

    @property
    def headroom_c(self) -> int | None:
        """Degrees until it slows down for heat."""
        if self.margin_c is not None and self.slow_at_margin_c is not None:
            return self.margin_c - self.slow_at_margin_c
        if self.temperature_c is not None and self.slow_at_c is not None:
            return self.slow_at_c - self.temperature_c
        return None


@dataclass(frozen=True)
class Healths:
    """All GPUs that the driver lists. `all` is None where nothing could be read, and `error` says what was said."""

    all: tuple[Health, ...] | None
    attached: int | None  # how many the driver counts
    driver: str | None
    cuda: str | None  # the newest CUDA that this driver runs, as "13.0"
    error: str = ""


def number(*texts: str) -> int | None:
    """Of the first that tells one: "97887 MiB", "16x", "-5 C", "2619 MHz"."""
    found = real(*texts)
    return None if found is None else int(found)


def real(*texts: str) -> float | None:
    """As `number`, with its fraction: "195.68 W"."""
    for text in filter(known, texts):
        try:
            return float(text.split()[0].rstrip("x"))
        except ValueError:
            continue
    return None


def total(*texts: str) -> int | None:
    """Of all that tell a number; a counter that a board does not have adds nothing, one of a lost GPU is not known."""
    if LOST in texts:
        return None
    found = [value for value in map(number, texts) if value is not None]
    return sum(found) if found else None


def flag(*texts: str) -> bool | None:
    """Whether one of them says yes; None where none says yes or no."""
    said = {text for text in texts if text in YES or text in NO}
    return bool(said & YES) if said else None


def word(*texts: str) -> str | None:
    """The first that is told."""
    return next(filter(known, texts), None)


def outcome(*texts: str) -> str | None:
    """As `word`, where "Unknown Error" is an answer."""
    return next((text for text in texts if known(text) or text == "Unknown Error"), None)


def action(*texts: str) -> str | None:
    """What the driver wants: newer ones name it; those before 575 say yes to a reset, or to a drain and reset."""
    named, reset, drain = (*texts, "", "", "")[:3]
    if known(named):
        return "" if named == "None" else named
    if flag(reset, drain) is None:
        return None
    return "Drain and Reset" if flag(drain) else "Reset" if flag(reset) else ""


def known(text: str) -> bool:
    return bool(text) and not text.startswith(UNTOLD)


Reader = Callable[..., Any]
ECC = ("sram_uncorrectable", "sram_uncorrectable_parity", "sram_uncorrectable_secded", "dram_uncorrectable")
POWER = "gpu_power_readings"
LINK = "pci/pci_gpu_link_info"

# {field of Health: (how it is read, from which elements; where drivers differ, the newest one's first)}
ELEMENTS: Mapping[str, tuple[Reader, tuple[str, ...]]] = {
    "uuid": (word, ("uuid",)),
    "name": (word, ("product_name",)),
    "minor": (number, ("minor_number",)),
    "persistence": (flag, ("persistence_mode",)),
    "virtualization": (word, ("gpu_virtualization_mode/virtualization_mode",)),
    "mig": (flag, ("mig_mode/current_mig",)),
    "mig_pending": (flag, ("mig_mode/pending_mig",)),
    "recovery": (
        action,
        ("gpu_recovery_action", "gpu_reset_status/reset_required", "gpu_reset_status/drain_and_reset_recommended"),
    ),
    "pcie_gen": (number, (f"{LINK}/pcie_gen/current_link_gen",)),
    "pcie_gen_max": (number, (f"{LINK}/pcie_gen/max_link_gen",)),
    "pcie_width": (number, (f"{LINK}/link_widths/current_link_width",)),
    "pcie_width_max": (number, (f"{LINK}/link_widths/max_link_width",)),
    "pstate": (word, ("performance_state",)),
    "memory_total_mib": (number, ("fb_memory_usage/total",)),
    "memory_used_mib": (number, ("fb_memory_usage/used",)),
    "load": (number, ("utilization/gpu_util",)),
    "ecc": (flag, ("ecc_mode/current_ecc",)),
    "uncorrected": (total, (*(f"ecc_errors/volatile/{name}" for name in ECC), "ecc_errors/volatile/double_bit/total")),
    "uncorrected_ever": (
        total,
        (*(f"ecc_errors/aggregate/{name}" for name in ECC), "ecc_errors/aggregate/double_bit/total"),
    ),
    "sram_worn": (flag, ("ecc_errors/aggregate/sram_threshold_exceeded",)),
    "repair_pending": (flag, ("ecc_errors/channel_repair_pending", "ecc_errors/tpc_repair_pending")),
    "unrepairable": (flag, ("ecc_errors/unrepairable_memory",)),
    "retired_pending": (flag, ("retired_pages/pending_retirement", "retired_pages/pending_blacklist")),
    "remapped": (number, ("remapped_rows/remapped_row_unc",)),
    "remap_pending": (flag, ("remapped_rows/remapped_row_pending",)),
    "remap_failed": (flag, ("remapped_rows/remapped_row_failure",)),
    "temperature_c": (number, ("temperature/gpu_temp",)),
    "slow_at_c": (number, ("temperature/gpu_temp_slow_threshold",)),
    "margin_c": (number, ("temperature/gpu_temp_tlimit",)),
    "slow_at_margin_c": (number, ("temperature/gpu_temp_slow_tlimit_threshold",)),
    "power_w": (
        real,
        (
            f"{POWER}/instant_power_draw",
            f"{POWER}/average_power_draw",
            f"{POWER}/power_draw",
            "power_readings/power_draw",
        ),
    ),
    "power_limit_w": (real, (f"{POWER}/current_power_limit", "power_readings/power_limit")),
    "power_default_w": (real, (f"{POWER}/default_power_limit", "power_readings/default_power_limit")),
    "clock_mhz": (number, ("clocks/sm_clock",)),
    "clock_max_mhz": (number, ("max_clocks/sm_clock",)),
    "clock_set_mhz": (number, ("applications_clocks/graphics_clock",)),
    "clock_default_mhz": (number, ("default_applications_clocks/graphics_clock",)),
    "fabric_state": (word, ("fabric/state",)),
    "fabric_status": (outcome, ("fabric/status",)),
    "fabric_health": (word, ("fabric/health/summary",)),
    "fabric_bandwidth": (word, ("fabric/health/bandwidth",)),
}
# Drivers before 535 call them throttle reasons.
REASONS = ("clocks_event_reasons", "clocks_throttle_reasons")
PREFIXES = ("clocks_event_reason_", "clocks_throttle_reason_")
WANTED = (*(path for _, paths in ELEMENTS.values() for path in paths), *(f"{name}/*" for name in REASONS))


def parse(answer: Mapping[str, Any]) -> Healths:
    """From what `deploy.host.gpu_health` answers to WANTED."""
    listed = answer.get("gpus")
    return Healths(
        None if listed is None else tuple(_health(i, gpu["id"], gpu["told"]) for i, gpu in enumerate(listed)),
        number(answer.get("attached_gpus", "")),
        word(answer.get("driver_version", "")),
        word(answer.get("cuda_version", "")),
        answer.get("error", "") or ("" if listed else "nvidia-smi named no GPU"),
    )


def _health(index: int, bus: str, told: Mapping[str, str]) -> Health:
    values = {name: read(*(told.get(path, "") for path in paths)) for name, (read, paths) in ELEMENTS.items()}
    lost = LOST in told.values()
    return Health(index=index, bus=bus, lost=lost, reasons=_reasons(told), **values)


def _reasons(told: Mapping[str, str]) -> frozenset[str] | None:
    """The active ones, without the prefix that drivers differ in."""
    said = {path.rpartition("/")[2]: text for path, text in told.items() if path.startswith(REASONS)}
    if not any(text in YES or text in NO for text in said.values()):
        return None
    return frozenset(_bare(name) for name, text in said.items() if text in YES)


def _bare(name: str) -> str:
    for prefix in PREFIXES:
        name = name.removeprefix(prefix)
    return name


FACT: Fact[Healths] = told_by("gpu_health", parse, *WANTED)
