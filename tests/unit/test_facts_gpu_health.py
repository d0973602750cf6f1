"""What `nvidia-smi -q -x` says of a GPU's health, as drivers of several years wrote it."""

# mypy: allow-untyped-defs, allow-untyped-calls

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deploy import host
from deploy.facts import gpu_health
from deploy.host.gpu_health import thinned
from tests.project import PATIENCE

FIXTURES = Path(__file__).parents[1] / "fixtures" / "facts"
BIN = Path(__file__).parents[1] / "fake-bin"


def read(document):
    """As it comes to us: thinned on the host, through JSON, parsed."""
    return gpu_health.parse(json.loads(json.dumps(thinned(document, gpu_health.WANTED))))


RECORDED: dict[str, tuple[int, dict[str, Any]]] = {
    "smi-470-t4.xml": (
        0,
        {
            "name": "Tesla T4",
            "bus": "00000000:1E:00.0",
            "minor": 0,
            "mig": None,
            "recovery": None,
            "persistence": False,
            "pcie_gen": 1,
            "pcie_gen_max": 3,
            "pcie_width": 8,
            "pcie_width_max": 16,
            "reasons": {"hw_slowdown", "sw_thermal_slowdown"},
            "uncorrected": 1,
            "uncorrected_ever": 2,
            "retired_pending": True,
            "remap_pending": None,
            "remap_failed": None,
            "headroom_c": 1,
            "power_w": 9.47,
            "power_limit_w": 60.0,
            "power_default_w": 70.0,
            "clock_set_mhz": 585,
            "fabric_state": None,
            "lost": False,
        },
    ),
    "smi-535-a100-mig.xml": (
        0,
        {
            "mig": True,
            "load": None,
            "memory_total_mib": 81920,  # its own, not a slice's
            "recovery": "Drain and Reset",
            "uncorrected": 4,
            "uncorrected_ever": 5,
            "retired_pending": None,
            "reasons": set(),
            "headroom_c": 62,
            "power_w": 67.03,
            "fabric_state": None,
        },
    ),
    "smi-580-b200-vm.xml": (
        0,
        {
            "virtualization": "Pass-Through",
            "persistence": False,
            "recovery": "",
            "pcie_gen_max": 5,
            "reasons": {"gpu_idle"},
            "uncorrected": 0,
            "sram_worn": False,
            "repair_pending": False,
            "unrepairable": None,
            "retired_pending": None,
            "headroom_c": 52,
            "power_w": 195.79,
            "clock_set_mhz": 1965,
            "clock_default_mhz": 1965,
            "fabric_state": "Completed",
            "fabric_status": "Success",
            "fabric_health": "Healthy",
            "fabric_bandwidth": None,
        },
    ),
    "smi-590-rtx-pro-6000.xml": (
        0,
        {
            "name": "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
            "mig": None,
            "ecc": False,
            "uncorrected": None,
            "uncorrected_ever": None,
            "memory_used_mib": 65720,
            "pcie_gen": 1,
            "pcie_gen_max": 4,
            "reasons": set(),
            "headroom_c": 70,
            "power_limit_w": 300.0,
            "power_default_w": 300.0,
            "clock_set_mhz": None,
            "clock_max_mhz": 3090,
            "fabric_state": None,
            "fabric_health": None,
        },
    ),
    "smi-580-gb200-lost.xml": (
        0,
        {
            "lost": False,
            "recovery": None,
            "uncorrected": 0,
            "remapped": 0,
            "remap_pending": False,
            "headroom_c": 54,
            "power_w": 145.0,
            "clock_set_mhz": None,
            "fabric_state": "Completed",
            "fabric_health": "Unhealthy",
            "fabric_bandwidth": "Degraded",
            "reasons": None,
        },
    ),
}


@pytest.mark.parametrize("name", RECORDED)
def test_each_driver_s_own_elements_are_understood(name):
    index, expected = RECORDED[name]
    found = read((FIXTURES / name).read_bytes())
    assert found.all
    assert {field: getattr(found.all[index], field) for field in expected} == expected
    assert (found.driver in name or found.driver.startswith(name.split("-")[1]), found.error) == (True, "")


def test_a_lost_gpu_is_told_and_nothing_of_it_is_made_up():
    lost = read((FIXTURES / "smi-580-gb200-lost.xml").read_bytes()).all[1]
    assert (lost.lost, lost.index, lost.name) == (True, 1, "NVIDIA GB200")
    told = [lost.memory_used_mib, lost.uncorrected, lost.remap_pending, lost.temperature_c, lost.fabric_state]
    assert told == [None] * 5


@pytest.mark.parametrize(
    ("document", "error"),
    [
        (b"", "nvidia-smi said nothing"),
        (b"No devices were found\n", "No devices were found"),
        (b"<nvidia_smi_log><gpu id='1'>", "<nvidia_smi_log><gpu id='1'>"),
        (b"<nvidia_smi_log><gpu></nvidia_smi_log>", "<nvidia_smi_log><gpu></nvidia_smi_log>"),
        (b"Failed to initialize NVML: Driver/library version mismatch\n", "Failed to initialize NVML: Driver/"),
    ],
)
def test_what_is_no_document_is_the_error(document, error):
    found = read(document)
    assert (found.all, found.error.startswith(error)) == (None, True)


def test_words_beside_a_document_are_told_with_it():
    found = read(
        b"<nvidia_smi_log><attached_gpus>2</attached_gpus><gpu id='a'/></nvidia_smi_log>\n"
        b"Unable to determine the device handle for GPU0000:38:00.0: Unknown Error\n"
    )
    assert (len(found.all), found.attached) == (1, 2)
    assert found.error == "Unable to determine the device handle for GPU0000:38:00.0: Unknown Error"


def test_a_document_without_gpus_names_none():
    assert read(b"<nvidia_smi_log></nvidia_smi_log>").error == "nvidia-smi named no GPU"


@pytest.mark.parametrize(
    ("texts", "value"),
    [
        (("97887 MiB",), 97887),
        (("16x",), 16),
        (("-5 C",), -5),
        (("N/A", "12 W"), 12),
        (("[N/A]",), None),
        (("Requested functionality has been deprecated",), None),
        (("Unknown Error",), None),
        (("",), None),
        (("a lot",), None),
    ],
)
def test_numbers_are_read_with_their_units(texts, value):
    assert gpu_health.number(*texts) == value


@pytest.mark.parametrize(
    ("texts", "value"),
    [
        (("None", "", ""), ""),
        (("Reset", "", ""), "Reset"),
        (("N/A", "", ""), None),
        (("", "No", "N/A"), ""),
        (("", "Yes", "No"), "Reset"),
        (("", "No", "Yes"), "Drain and Reset"),
        (("Drain P2P", "Requested functionality has been deprecated", ""), "Drain P2P"),
        (("", "", ""), None),
    ],
)
def test_what_the_driver_wants_done_is_read_in_old_and_new_words(texts, value):
    assert gpu_health.action(*texts) == value


def asked(told, tmp_path, path=None):
    """The program on this machine, with a fake nvidia-smi."""
    (tmp_path / "gpus.json").write_text(json.dumps(told))
    environment = {"PATH": path or f"{BIN}:{os.environ['PATH']}", "FAKE_GPU_STATE": str(tmp_path)}
    argv = [sys.executable, "-I", "-S", "-c", host.source("gpu_health"), *gpu_health.WANTED]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True, timeout=PATIENCE)
    return gpu_health.parse(json.loads(done.stdout)), len(done.stdout)


def test_eight_gpus_come_thinned(tmp_path):
    found, size = asked({"preset": "rtx-pro-6000 x8", "faults": {"2": ["ecc"], "5": ["lost"]}}, tmp_path)
    assert [gpu.uncorrected for gpu in found.all] == [0, 0, 3, 0, 0, None, 0, 0]
    assert [gpu.lost for gpu in found.all] == [i == 5 for i in range(8)]
    assert (found.attached, found.driver, found.cuda) == (8, "595.71.05", "13.2")
    assert size < 8 * 4096


def test_a_missing_tool_is_told_plainly(tmp_path):
    found, _ = asked({"preset": "b200"}, tmp_path, path="/nonexistent")
    assert (found.all, found.error) == (None, "there is no nvidia-smi")


def test_a_driver_that_fails_is_told_in_its_own_words(tmp_path):
    found, _ = asked({"preset": "b200", "failure": "mismatch"}, tmp_path)
    assert (found.all, found.error.splitlines()[0]) == (
        None,
        "Failed to initialize NVML: Driver/library version mismatch",
    )
