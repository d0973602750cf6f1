"""The boards, and what can be wrong with one: as data.

Elements, units and values after documents of `nvidia-smi -q -x` of real boards: RTX PRO 6000 (driver 590.44.01),
B200 (580.105.08), H100 (570), GB200 with one GPU lost; re-made here, none of them is copied.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Model:
    """A board as nvidia-smi tells of it; MiB, W and MHz as text."""

    name: str
    total: str
    reserved: str
    driver: str
    cuda: str
    capability: str
    power: str
    clock: str
    links: int  # NVLinks; 0: none, and no NVSwitch


MODELS = {
    "rtx-pro-6000": Model(
        "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        "97887", "637", "595.71.05", "13.2", "12.0", "600.00", "2430", 0,
    ),
    "b200": Model(
        "NVIDIA B200", "183359", "728", "570.172.08", "12.8", "10.0", "1000.00", "1965", 18
    ),
    "b300": Model(
        "NVIDIA B300 SXM6 AC",
        "275040", "740", "580.95.05", "13.0", "10.3", "1100.00", "2032", 18,
    ),
    "h200": Model(
        "NVIDIA H200", "143771", "612", "570.172.08", "12.8", "9.0", "700.00", "1980", 18
    ),
}  # fmt: skip

# {Xid: the driver's words}, as they stand in kernel logs of real hosts
XIDS = {
    31: "pid=4242, name=python3, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted",
    48: "pid='<unknown>', name=<unknown>, An uncorrectable double bit error (DBE) has been detected on GPU",
    63: "pid='<unknown>', name=<unknown>, Row Remapper: New row marked for remapping, reset gpu to activate.",
    74: "pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 6(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0)",
    79: "pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
}
LOST = "GPU is lost"
# {fault: ({element: text}, {field of --query-gpu: text})}
FAULTS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "ecc": (
        {"ecc_errors/volatile/dram_uncorrectable": "3", "ecc_errors/aggregate/dram_uncorrectable": "5"},
        {"ecc.errors.uncorrected.volatile.total": "3", "ecc.errors.uncorrected.aggregate.total": "5"},
    ),
    "ecc-once": (
        {"ecc_errors/aggregate/dram_uncorrectable": "5"},
        {"ecc.errors.uncorrected.aggregate.total": "5"},
    ),
    "sram-worn": ({"ecc_errors/aggregate/sram_threshold_exceeded": "Yes"}, {}),
    "remap-pending": (
        {"remapped_rows/remapped_row_unc": "1", "remapped_rows/remapped_row_pending": "Yes"},
        {"remapped_rows.pending": "Yes"},
    ),
    "remap-failed": ({"remapped_rows/remapped_row_failure": "Yes"}, {"remapped_rows.failure": "Yes"}),
    "hot": (
        {
            "clocks_event_reasons/clocks_event_reason_hw_slowdown": "Active",
            "clocks_event_reasons/clocks_event_reason_hw_thermal_slowdown": "Active",
            "temperature/gpu_temp": "91 C",
            "temperature/gpu_temp_tlimit": "-3 C",
            "clocks/sm_clock": "345 MHz",
        },
        {"temperature.gpu": "91", "clocks_event_reasons.active": "0x0000000000000048"},
    ),
    "power-brake": (
        {
            "clocks_event_reasons/clocks_event_reason_hw_slowdown": "Active",
            "clocks_event_reasons/clocks_event_reason_hw_power_brake_slowdown": "Active",
        },
        {"clocks_event_reasons.active": "0x0000000000000088"},
    ),
    "power-limited": ({"gpu_power_readings/current_power_limit": "300.00 W"}, {"power.limit": "300.00"}),
    "mig": (
        {"mig_mode/current_mig": "Enabled", "mig_mode/pending_mig": "Enabled", "utilization/gpu_util": "N/A"},
        {"mig.mode.current": "Enabled", "utilization.gpu": "[N/A]"},
    ),
    "not-persistent": ({"persistence_mode": "Disabled"}, {"persistence_mode": "Disabled"}),
    "narrow": ({"pci/pci_gpu_link_info/link_widths/current_link_width": "8x"}, {"pcie.link.width.current": "8"}),
    "fabric-not-started": (
        {"fabric/state": "Not Started", "fabric/status": "N/A", "fabric/health/summary": "N/A"},
        {"fabric.state": "Not Started", "fabric.status": "[N/A]"},
    ),
    "fabric-in-progress": (
        {"fabric/state": "In Progress", "fabric/status": "N/A", "fabric/health/summary": "N/A"},
        {"fabric.state": "In Progress", "fabric.status": "[N/A]"},
    ),
    "fabric-unhealthy": (
        {"fabric/health/summary": "Unhealthy", "fabric/health/route_unhealthy": "True"},
        {},
    ),
    "wants-reset": ({"gpu_recovery_action": "Reset"}, {}),
    "lost": (
        {
            "fb_memory_usage/total": LOST, "fb_memory_usage/used": LOST, "fb_memory_usage/free": LOST,
            "utilization/gpu_util": LOST, "utilization/memory_util": LOST, "temperature/gpu_temp": LOST,
            "ecc_errors/volatile/dram_uncorrectable": LOST, "ecc_errors/aggregate/dram_uncorrectable": LOST,
            "clocks/sm_clock": LOST, "clocks/graphics_clock": LOST, "fabric/state": LOST, "fabric/status": LOST,
            "gpu_power_readings/instant_power_draw": LOST, "gpu_power_readings/average_power_draw": LOST,
        },
        dict.fromkeys(("memory.total", "memory.used", "utilization.gpu", "temperature.gpu"), "[GPU is lost]"),
    ),
}  # fmt: skip
