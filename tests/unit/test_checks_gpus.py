"""What is found fault with in GPUs: hosts by the fake nvidia-smi, one fault each."""

# mypy: allow-untyped-defs, allow-untyped-calls

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from deploy.checks import Case, gpus
from deploy.facts import Answer, known
from deploy.facts import gpus as gpus_fact
from deploy.facts.gpus import Gpus
from deploy.facts.kernel import Xid
from deploy.inventory import Host
from tests.gpu_hosts import B200, H200, QUIET, RTX, case, found, said


@pytest.mark.parametrize("taken", [8, None])
@pytest.mark.parametrize(
    ("told", "what"),
    [
        (B200, "8 x NVIDIA B200, 179 GiB; driver 570.172.08, CUDA up to 12.8"),
        (RTX, "8 x NVIDIA RTX PRO 6000 Blackwell Server Edition, 96 GiB; driver 595.71.05, CUDA up to 13.2"),
    ],
)
def test_sound_gpus_are_told_as_what_they_are(tmp_path, told, taken, what):
    assert found(gpus.check, case(tmp_path, told, taken)) == [("PASS", what, "\n-> ")]


# {fault of GPU 2: (verdict, words of what is found, words of evidence and remedy)}
FAULTS = {
    "lost": ("FAIL", "GPU 2: fell off the bus", "(00000000:38:00.0): the driver lists it, and it answers nothing"),
    "wants-reset": ("FAIL", "GPU 2: the driver asks for it to be recovered first", "Reset\n-> end what uses it"),
    "ecc": ("WARN", "GPU 2: memory had errors that ECC could not correct", "3 since the driver was loaded, 5"),
    "sram-worn": ("WARN", "GPU 2: SRAM has had more errors than is sound", "have it replaced"),
    "remap-pending": (
        "WARN",
        "GPU 2: memory waits for the next reset",
        "then as root: nvidia-smi --gpu-reset -i 2 (or",
    ),
    "remap-failed": ("FAIL", "GPU 2: no spare rows of memory are left", "CUDA_VISIBLE_DEVICES"),
    "hot": ("WARN", "GPU 2: slowed down by heat", "91 C, 345 of 2430 MHz, hw_thermal_slowdown"),
    "power-brake": ("WARN", "GPU 2: slowed down by the power supply", "hw_power_brake_slowdown"),
    "power-limited": ("WARN", "GPU 2: limited to less power", "300 of 600 W\n-> somebody set it; as root: nvidia-smi"),
    "mig": ("FAIL", "GPU 2: divided (MIG)", "nvidia-smi -i 2 -mig 0"),
    "not-persistent": ("WARN", "GPU 2: persistence mode is off", "nvidia-persistenced"),
    "narrow": ("WARN", "GPU 2: less of a PCIe link", "8 of 16 lanes"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_told_once_with_its_gpu(tmp_path, fault):
    verdict, what, more = FAULTS[fault]
    told = found(gpus.check, case(tmp_path, {**RTX, "faults": {"2": [fault]}}))
    [(seen_verdict, seen_what, seen_more)] = [one for one in told if one[0] != "PASS"]
    assert (seen_verdict, what in seen_what, more in seen_more) == (verdict, True, True), (seen_what, seen_more)
    assert any(one[0] == "PASS" for one in told) == (verdict != "FAIL"), "what else was seen is told beside a warning"


def test_all_faults_are_told_at_once_and_gpus_that_are_alike_share_a_line(tmp_path):
    told = {**RTX, "faults": {"*": ["not-persistent"], "1": ["ecc"], "5": ["lost"], "7": ["remap-failed"]}}
    findings = {what: more for _, what, more in found(gpus.check, case(tmp_path, told))}
    assert len(findings) == 4
    assert "GPU 0-4, 6-7: off" in findings[next(what for what in findings if "persistence" in what)]


def test_errors_of_long_ago_are_no_fault(tmp_path):
    assert [one[0] for one in found(gpus.check, case(tmp_path, {**RTX, "faults": {"2": ["ecc-once"]}}))] == ["PASS"]


# {element of GPU 2: (text, verdict, words)}: what only some drivers and boards tell
ELEMENTS = {
    "an old driver does not judge errors": (
        {"gpu_recovery_action": "N/A", "ecc_errors/volatile/dram_uncorrectable": "1"},
        ("FAIL", "memory had errors that ECC could not correct"),
    ),
    "a drain may wait": ({"gpu_recovery_action": "Drain and Reset"}, ("WARN", "less than whole until a reset")),
    "a reboot may not": ({"gpu_recovery_action": "Reboot"}, ("FAIL", "asks for it to be recovered")),
    "a board tells no finer reason": (
        {"clocks_event_reasons/clocks_event_reason_hw_slowdown": "Active"},
        ("WARN", "slowed down by its board"),
    ),
    "close to its limit": ({"temperature/gpu_temp_tlimit": "3 C"}, ("WARN", "close to the heat")),
    "slow link under load": (
        {"pci/pci_gpu_link_info/pcie_gen/current_link_gen": "3", "utilization/gpu_util": "80 %"},
        ("WARN", "less of a PCIe link"),
    ),
    "a worse slot": ({"pci/pci_gpu_link_info/pcie_gen/max_link_gen": "3"}, ("WARN", "in a worse slot than others")),
    "held clocks": (
        {"applications_clocks/graphics_clock": "585 MHz", "default_applications_clocks/graphics_clock": "1590 MHz"},
        ("WARN", "held below the usual clock"),
    ),
}


@pytest.mark.parametrize("name", ELEMENTS)
def test_by_single_elements(tmp_path, name):
    elements, (verdict, words) = ELEMENTS[name]
    told = found(gpus.check, case(tmp_path, {**RTX, "elements": {"2": elements}}))
    [(seen_verdict, seen_what, _)] = [one for one in told if one[0] != "PASS"]
    assert (seen_verdict, words in seen_what) == (verdict, True), seen_what


@pytest.mark.parametrize("element", ["temperature/gpu_temp_tlimit", "persistence_mode", "gpu_recovery_action"])
def test_what_is_not_told_breaks_no_rule(tmp_path, element):
    told = {**RTX, "elements": {"2": {element: "N/A"}}}
    assert [one[0] for one in found(gpus.check, case(tmp_path, told))] == ["PASS"]


def test_a_link_that_rests_is_not_slow(tmp_path):
    told = {**RTX, "elements": {"*": {"pci/pci_gpu_link_info/pcie_gen/current_link_gen": "1"}}}
    assert [one[0] for one in found(gpus.check, case(tmp_path, told))] == ["PASS"]


# {what: (told, how many are taken, more of the profile, verdict, words)}
COUNTED: dict[str, tuple[dict[str, Any], int | None, dict[str, Any], str, str]] = {
    "too few": ({"preset": "b200 x4"}, 8, {}, "FAIL", "4 GPUs, 8 are wanted"),
    "hidden": (RTX, 8, {"env": {"CUDA_VISIBLE_DEVICES": "0,1"}}, "FAIL", "leaves 2 of 8 GPUs"),
    "several models": (
        {**RTX, "fields": {"3": {"name": "NVIDIA H200"}}},
        8,
        {"env": {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}},
        "WARN",
        "the GPUs are not alike",
    ),
    "numbered by speed": (
        {**RTX, "fields": {"3": {"name": "NVIDIA H200"}}},
        2,
        {},
        "WARN",
        "CUDA numbers GPUs of several models",
    ),
    "no driver": ({**RTX, "failure": "no-driver"}, 8, {}, "UNKNOWN", "the GPUs cannot be seen"),
    "fewer than the inventory says, no profile": ({"preset": "b200 x7"}, None, {}, "FAIL", "7 GPUs, of 8 in the inv"),
    "fewer than the inventory says, and enough": ({"preset": "b200 x7"}, 4, {}, "WARN", "7 GPUs, of 8 in the inv"),
    "one fell off, and no other is named": (
        {**RTX, "failure": "fallen-off", "failed_gpu": 3},
        8,
        {},
        "FAIL",
        "a GPU does not answer, and so none is told",
    ),
    "no driver, no profile": ({**RTX, "failure": "mismatch"}, None, {}, "UNKNOWN", "the GPUs cannot be seen"),
}


@pytest.mark.parametrize("name", COUNTED)
def test_the_count(tmp_path, name):
    told, taken, fields, verdict, words = COUNTED[name]
    findings = [one for one in found(gpus.check, case(tmp_path, told, taken, **fields)) if one[0] != "PASS"]
    assert [(one[0], words in one[1]) for one in findings] == [(verdict, True)], findings


def test_faults_of_gpus_that_are_not_taken_do_not_matter_but_one_that_is_gone_is_told(tmp_path):
    told = {**RTX, "faults": {"6": ["remap-failed"], "7": ["lost"]}}
    findings = found(gpus.check, case(tmp_path, told, 4))
    assert [(one[0], one[1][:16]) for one in findings] == [("WARN", "GPU 7 of 8: fell"), ("PASS", "4 x NVIDIA RTX P")]


def test_a_gpu_whose_state_is_not_told_is_unknown_beside_those_that_are_told(tmp_path):
    told = {**RTX, "elements": {"2": {"uuid": "N/A"}, "5": {"remapped_rows/remapped_row_failure": "Yes"}}}
    findings = found(gpus.check, case(tmp_path, told))
    assert [(one[0], one[1][:12]) for one in findings] == [("UNKNOWN", "how GPU 2 is"), ("FAIL", "GPU 5: no sp")]


def test_a_slice_may_be_wanted(tmp_path):
    env = {"CUDA_VISIBLE_DEVICES": "MIG-0a1b"}
    told = {**H200, "faults": {"*": ["mig"]}}
    assert found(gpus.check, case(tmp_path, told, 1, env=env)) == [("PASS", "MIG instances MIG-0a1b", "\n-> ")]


def test_memory_that_is_in_use_is_told(tmp_path):
    told = {**RTX, "ghosts": [{"gpu": 3, "mib": 60000}, {"gpu": 1, "mib": 500}]}
    [(_, what, _)] = found(gpus.check, case(tmp_path, told, None))
    assert "memory in use on GPU 3 (59 GiB)" in what


def test_a_server_without_gpus_and_a_host_without_any_are_not_judged(tmp_path):
    assert found(gpus.check, case(tmp_path, RTX, 0)) == []
    (tmp_path / "gpus.json").unlink()
    bare = known(gpus=Gpus(None, None, "there is no nvidia-smi"))
    host = Host.model_validate({"name": "h1"})
    assert found(gpus.check, Case(host, bare, None, None)) == []  # type: ignore[arg-type]
    broken = known(gpus=Gpus(None, None, "NVIDIA-SMI has failed"))
    assert [one[0] for one in found(gpus.check, Case(host, broken, None, None))] == ["WARN"]  # type: ignore[arg-type]
    [(verdict, _, _)] = found(gpus.check, Case(host.model_copy(update={"gpus": 8}), bare, None, None))  # type: ignore[arg-type]
    assert verdict == "UNKNOWN", "the inventory says that it has some"


# {what: (Xids of GPUs, verdict, words of evidence and remedy)}; four GPUs are taken
XIDS: dict[str, tuple[dict[str, list[int]], str, str]] = {
    "of one of ours": ({"2": [79]}, "FAIL", "Xid 79 of 0000:38:00: GPU has fallen off the bus., 60 s ago"),
    "a warning": ({"3": [63]}, "WARN", "nvidia-smi --gpu-reset -i 0000:5a:00.0"),
    "several of one kind": ({"0": [48, 48]}, "FAIL", "Xid 48 of 0000:16:00"),
    "of another GPU": ({"7": [79]}, "PASS", ""),
    "a program's own fault": ({"2": [31]}, "PASS", ""),
}


@pytest.mark.parametrize("name", XIDS)
def test_an_error_in_the_kernel_s_log(tmp_path, name):
    xids, verdict, words = XIDS[name]
    told = {**RTX, "xids": xids, "elements": {"*": {"gpu_recovery_action": "N/A"}}}
    findings = found(gpus.check, case(tmp_path, told, 4))
    assert [one[0] for one in findings] == [verdict, *(["PASS"] if verdict == "WARN" else [])]
    assert words in findings[0][2]


def test_a_gpu_for_which_the_driver_wants_nothing_done_any_more_may_go_on(tmp_path):
    told = {**RTX, "xids": {"2": [48]}, "elements": {"2": {"gpu_recovery_action": "None"}}}
    [(verdict, what, _), _] = found(gpus.check, case(tmp_path, told, 4))
    assert (verdict, "asks for no reset now" in what) == ("WARN", True)


# {what nvidia-smi says beside its rows: (verdict, whether who holds memory is known all the same)}
BESIDE = {
    "WARNING: infoROM is corrupted at gpu 0000:41:00.0": ("WARN", True),
    "[Not Supported]": ("WARN", False),
    "[Not Supported], [N/A], [N/A], [N/A]": ("WARN", False),
}


@pytest.mark.parametrize("words", BESIDE)
def test_words_beside_the_rows_are_no_fault_of_a_gpu(tmp_path, words):
    verdict, known_ = BESIDE[words]
    facts = case(tmp_path, RTX)
    with patch.dict("os.environ", FAKE_GPU_STATE=str(tmp_path)):
        text = said(*gpus_fact.GPUS[1:])[1]
    told = gpus_fact.FACT.parse({"gpus": Answer(14, text + words * known_), "holders": Answer(0, f"{words}\n")})
    facts.facts.parsed["gpus"] = told
    assert (len(told.all or ()), told.holders == ()) == (8, known_)
    assert [(one[0], words in one[2]) for one in found(gpus.check, facts)] == [(verdict, True), ("PASS", False)]


def test_a_driver_that_does_not_know_compute_capabilities_names_its_gpus(tmp_path):
    case(tmp_path, RTX)
    with patch.dict("os.environ", FAKE_GPU_STATE=str(tmp_path)):
        told = gpus_fact.parse(said(*gpus_fact.PLAIN[1:])[1])
    assert (len(told[0]), {gpu.compute_cap for gpu in told[0]}, told[1]) == (8, {None}, "")


def test_an_error_of_a_switch_is_everybody_s(tmp_path):
    xid = Xid(20034, "0000:05:00", "Fatal, Link 30 LTSSM Fault Up", 1e6, switch=True)
    [(verdict, _, evidence)] = found(gpus.check, case(tmp_path, RTX, 4, log=replace(QUIET, xids=(xid,))))
    assert (verdict, str(xid) in evidence) == ("FAIL", True)


def test_a_log_that_cannot_be_read_is_told_and_not_taken_for_an_empty_one(tmp_path):
    [(verdict, what, _)] = found(gpus.check, case(tmp_path, RTX, log=replace(QUIET, xids=None, error="not permitted")))
    assert (verdict, what.endswith("the kernel's log cannot be read")) == ("PASS", True)
