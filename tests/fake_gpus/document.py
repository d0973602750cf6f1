"""`nvidia-smi -q -x` of the fake GPUs: one element after another, in the driver's own order and words."""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

import time
from typing import Any

REASONS = (
    "gpu_idle", "applications_clocks_setting", "sw_power_cap", "hw_slowdown", "hw_thermal_slowdown",
    "hw_power_brake_slowdown", "sync_boost", "sw_thermal_slowdown", "display_clocks_setting",
)  # fmt: skip
COUNTERS = ("sram_correctable", "sram_uncorrectable_parity", "sram_uncorrectable_secded", "dram_correctable",
            "dram_uncorrectable")  # fmt: skip


def elements(state, index):
    """{path below <gpu>: text} of one GPU."""
    model, used, bus = state.model, state.used(index), state.bus(index)
    switched = "Completed" if model.links else "N/A"
    found = {
        "product_name": model.name, "product_brand": "NVIDIA", "product_architecture": "Blackwell",
        "display_active": "Disabled", "persistence_mode": "Enabled", "addressing_mode": "None",
        "mig_mode/current_mig": "Disabled", "mig_mode/pending_mig": "Disabled", "mig_devices": "None",
        "serial": f"165000000000{index}", "uuid": state.uuid(index), "minor_number": str(index),
        "gpu_virtualization_mode/virtualization_mode": "None",
        "gpu_recovery_action": "None", "gsp_firmware_version": state.driver,
        "pci/pci_bus": bus.split(":")[1], "pci/pci_bus_id": bus,
        "pci/pci_gpu_link_info/pcie_gen/max_link_gen": "5",
        "pci/pci_gpu_link_info/pcie_gen/current_link_gen": "5" if model.links else "1",
        "pci/pci_gpu_link_info/link_widths/max_link_width": "16x",
        "pci/pci_gpu_link_info/link_widths/current_link_width": "16x",
        "fan_speed": "N/A", "performance_state": "P0" if model.links else "P8",
    }  # fmt: skip
    for reason in REASONS:
        found[f"clocks_event_reasons/clocks_event_reason_{reason}"] = "Active" if reason == "gpu_idle" else "Not Active"
    found |= {
        "fb_memory_usage/total": f"{model.total} MiB", "fb_memory_usage/reserved": f"{model.reserved} MiB",
        "fb_memory_usage/used": f"{used} MiB",
        "fb_memory_usage/free": f"{int(model.total) - int(model.reserved) - used} MiB",
        "compute_mode": "Default", "utilization/gpu_util": "0 %", "utilization/memory_util": "0 %",
        "ecc_mode/current_ecc": "Enabled", "ecc_mode/pending_ecc": "Enabled",
    }  # fmt: skip
    found |= {f"ecc_errors/{kind}/{name}": "0" for kind in ("volatile", "aggregate") for name in COUNTERS}
    found |= {
        "ecc_errors/aggregate/sram_threshold_exceeded": "No",
        "ecc_errors/channel_repair_pending": "No", "ecc_errors/tpc_repair_pending": "No",
        "retired_pages/pending_blacklist": "N/A", "retired_pages/pending_retirement": "N/A",
        "remapped_rows/remapped_row_corr": "0", "remapped_rows/remapped_row_unc": "0",
        "remapped_rows/remapped_row_pending": "No", "remapped_rows/remapped_row_failure": "No",
        "temperature/gpu_temp": "31 C", "temperature/gpu_temp_tlimit": "57 C",
        "temperature/gpu_temp_max_tlimit_threshold": "-5 C", "temperature/gpu_temp_slow_tlimit_threshold": "-2 C",
        "gpu_power_readings/average_power_draw": "74.10 W", "gpu_power_readings/instant_power_draw": "75.20 W",
        "gpu_power_readings/current_power_limit": f"{model.power} W",
        "gpu_power_readings/default_power_limit": f"{model.power} W",
        "gpu_memory_power_readings/average_power_draw": "N/A",
        "module_power_readings/current_power_limit": "N/A", "power_smoothing": "Insufficient Permissions",
        "clocks/graphics_clock": "345 MHz", "clocks/sm_clock": "345 MHz",
        "applications_clocks/graphics_clock": "Requested functionality has been deprecated",
        "default_applications_clocks/graphics_clock": "Requested functionality has been deprecated",
        "max_clocks/graphics_clock": f"{model.clock} MHz", "max_clocks/sm_clock": f"{model.clock} MHz",
        "fabric/state": switched, "fabric/status": "Success" if model.links else "N/A",
        "fabric/health/summary": "Healthy" if model.links else "N/A", "fabric/health/bandwidth": "N/A",
    }  # fmt: skip
    for clock in range(int(model.clock), 180, -8):  # the greater part of a real document
        found[f"supported_clocks/supported_mem_clock/supported_graphics_clock#{clock}"] = f"{clock} MHz"
    return {**found, **state.overridden("elements", index)}


def written(tree, depth):
    for name, below in tree.items():
        tabs, tag = "\t" * depth, name.partition("#")[0]
        if isinstance(below, dict):
            yield f"{tabs}<{tag}>"
            yield from written(below, depth + 1)
            yield f"{tabs}</{tag}>"
        else:
            yield f"{tabs}<{tag}>{below}</{tag}>"


def nested(found):
    tree: dict[str, Any] = {}
    for path, text in found.items():
        *above, name = path.split("/")
        place = tree
        for step in above:
            place = place.setdefault(step, {})
        place[name] = text
    return tree


def document(state):
    print('<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">\n<nvidia_smi_log>')
    print(f"\t<timestamp>{time.strftime('%a %b %d %H:%M:%S %Y')}</timestamp>")
    print(f"\t<driver_version>{state.driver}</driver_version>\n\t<cuda_version>{state.cuda}</cuda_version>")
    print(f"\t<attached_gpus>{state.count}</attached_gpus>")
    for index in range(state.count):
        print(f'\t<gpu id="{state.bus(index)}">')
        print("\n".join(written(nested(elements(state, index)), 2)))
        listed = [p for p in state.processes() if p[0] == index]
        print("\t\t<processes>")
        for _, pid, name, mib in listed:
            print(f"\t\t\t<process_info>\n\t\t\t\t<pid>{pid}</pid>\n\t\t\t\t<type>C</type>")
            print(f"\t\t\t\t<process_name>{name}</process_name>\n\t\t\t\t<used_memory>{mib} MiB</used_memory>")
            print("\t\t\t</process_info>")
        print("\t\t</processes>\n\t</gpu>")
    print("</nvidia_smi_log>")
