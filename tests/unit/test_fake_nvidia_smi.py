"""The stand-in for nvidia-smi answers in the recorded formats, and its memory is held by real processes."""

# mypy: allow-untyped-defs, allow-untyped-calls

import json
import os
import subprocess
import time
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.project import PATIENCE

SMI = str(Path(__file__).parents[1] / "fake-bin" / "nvidia-smi")
USED = ("--query-gpu=memory.used", "--format=csv,noheader,nounits")
APPS = ("--query-compute-apps=pid,process_name,used_gpu_memory", "--format=csv,noheader")


class Gpus:
    """A state folder, and the nvidia-smi that reads it."""

    def __init__(self, folder):
        self.folder = folder
        self.says(preset="rtx-pro-6000 x2")

    def says(self, **told):
        (self.folder / "gpus.json").write_text(json.dumps(told))

    def held_by(self, pid, mib, ticks=None, name="sglang::scheduler"):
        own = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
        (self.folder / "holders").mkdir(exist_ok=True)
        holder = {"pid": pid, "start_ticks": ticks or own, "name": name, "mib": mib}
        (self.folder / "holders" / f"{pid}.json").write_text(json.dumps(holder))

    def ask(self, *words):
        environment = {**os.environ, "FAKE_GPU_STATE": str(self.folder)}
        return subprocess.run(
            [SMI, *words], env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE
        )

    def used(self):
        return [int(line) for line in self.ask(*USED).stdout.split()]


@pytest.fixture
def gpus(tmp_path):
    return Gpus(tmp_path)


@pytest.fixture
def sleeper():
    with subprocess.Popen(["sleep", "100"]) as process:
        yield process
        process.kill()


def test_fields_come_in_the_order_asked_for(gpus):
    memory, rest = "memory.total,memory.used", "utilization.gpu,driver_version,compute_cap,power.limit,mig.mode.current"

    first, _ = gpus.ask(
        f"--query-gpu=index,uuid,name,{memory},{rest}", "--format=csv,noheader,nounits"
    ).stdout.splitlines()

    index, uuid, *others = first.split(", ")
    assert (index, uuid[:4], len(uuid)) == ("0", "GPU-", 40)
    name = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
    assert others == [name, "97887", "0", "0", "595.71.05", "12.0", "600.00", "Disabled"]


def test_units_and_heading_are_there_unless_refused(gpus):
    gpus.says(preset="b200 x1")

    lines = gpus.ask("--query-gpu=name, memory.total,power.limit", "--format=csv").stdout.splitlines()

    assert lines == ["name, memory.total [MiB], power.limit [W]", "NVIDIA B200, 183359 MiB, 1000.00 W"]


def test_one_gpu_can_be_asked_for(gpus):
    assert gpus.ask("--query-gpu=index", "--format=csv,noheader", "--id=1").stdout == "1\n"


@pytest.mark.parametrize(
    ("failure", "status", "said"),
    [
        ("no-driver", 9, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."),
        ("mismatch", 18, "Failed to initialize NVML: Driver/library version mismatch"),
        ("fallen-off", 15, "Unable to determine the device handle for GPU0000:27:00.0: Unknown Error"),
        ("no-devices", 6, "No devices were found"),
    ],
)
def test_failures_are_told_on_stdout_with_their_status(gpus, failure, status, said):
    gpus.says(preset="b200 x8", failure=failure, failed_gpu=1)

    done = gpus.ask(*USED)

    assert (done.returncode, done.stderr) == (status, "")
    assert done.stdout.startswith(said)


def test_a_field_that_does_not_exist_ends_it(gpus):
    done = gpus.ask("--query-gpu=index,memory.usd", "--format=csv")

    assert (done.returncode, done.stdout) == (2, 'Field "memory.usd" is not a valid field to query.\n\n')


def test_without_state_there_is_no_driver(tmp_path):
    assert Gpus(tmp_path).ask("-L").returncode == 0
    (tmp_path / "gpus.json").unlink()
    done = subprocess.run([SMI], env={**os.environ, "FAKE_GPU_STATE": str(tmp_path)}, capture_output=True, check=False)
    assert done.returncode == 9


def test_fields_can_be_overridden_for_one_gpu_or_all(gpus):
    gpus.says(preset="h200 x2", fields={"*": {"mig.mode.current": "Enabled"}, "1": {"memory.used": "[N/A]"}})

    done = gpus.ask("--query-gpu=utilization.gpu,memory.used", "--format=csv,noheader")

    assert done.stdout.splitlines() == ["[N/A], 0 MiB", "[N/A], [N/A]"]


def test_memory_is_held_as_long_as_its_process_lives(gpus, sleeper):
    gpus.held_by(sleeper.pid, {"0": 40000, "1": 300})
    assert gpus.used() == [40000, 300]
    assert gpus.ask(*APPS).stdout.splitlines()[0] == f"{sleeper.pid}, sglang::scheduler, 40000 MiB"

    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)  # dead, but still a zombie

    assert gpus.used() == [0, 0]
    assert gpus.ask(*APPS).stdout == ""


def test_another_process_with_the_same_pid_holds_nothing(gpus, sleeper):
    gpus.held_by(sleeper.pid, {"0": 40000}, ticks=1)

    assert gpus.used() == [0, 0]


def test_memory_can_linger_after_death_with_nobody_listed(gpus, sleeper):
    gpus.says(preset="rtx-pro-6000 x2", linger_seconds=0.5)
    gpus.held_by(sleeper.pid, {"0": 40000})
    sleeper.kill()
    sleeper.wait()

    assert gpus.used() == [40000, 0]
    assert gpus.ask(*APPS).stdout == ""
    deadline = time.monotonic() + PATIENCE
    while gpus.used() != [0, 0]:
        assert time.monotonic() < deadline


def test_memory_can_stay_for_ever(gpus, sleeper):
    gpus.says(preset="rtx-pro-6000 x2", linger_seconds=None)
    gpus.held_by(sleeper.pid, {"1": 40000})
    sleeper.kill()
    sleeper.wait()

    assert [gpus.used() for _ in range(3)] == [[0, 40000]] * 3
    assert gpus.ask(*APPS).stdout == ""


@pytest.mark.parametrize(
    ("fault", "field", "said"),
    [
        ("ecc", "ecc.errors.uncorrected.volatile.total", "3"),
        ("remap-pending", "remapped_rows.pending", "Yes"),
        ("mig", "utilization.gpu", "[N/A]"),
        ("lost", "memory.used", "[GPU is lost]"),
    ],
)
def test_a_fault_shows_in_a_field_and_in_the_document(gpus, fault, field, said):
    healthy = gpus.ask("-q", "-x").stdout
    gpus.says(preset="rtx-pro-6000 x2", faults={"1": [fault]})

    sound, sick = gpus.ask(f"--query-gpu={field}", "--format=csv,noheader,nounits").stdout.splitlines()
    document = gpus.ask("-q", "-x").stdout

    assert (sound != said, sick) == (True, said)
    sound, sick = document.split("<gpu id=")[1:]
    assert sound == healthy.split("<gpu id=")[1]
    assert sick != healthy.split("<gpu id=")[2]


def test_the_document_is_xml_and_names_who_holds_memory(gpus, sleeper):
    gpus.held_by(sleeper.pid, {"1": 300})

    document = ET.fromstring(gpus.ask("-q", "-x").stdout)

    assert [gpu.findtext("processes/process_info/pid") for gpu in document.findall("gpu")] == [None, str(sleeper.pid)]
    assert [gpu.findtext("fb_memory_usage/used") for gpu in document.findall("gpu")] == ["0 MiB", "300 MiB"]


def test_fabric_manager_has_a_version_and_a_state_where_it_is_installed(gpus):
    def fabric(program, *words):
        environment = {**os.environ, "FAKE_GPU_STATE": str(gpus.folder)}
        argv = [str(Path(SMI).with_name(program)), *words]
        return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE)

    assert fabric("nv-fabricmanager", "--version").returncode == 127
    gpus.says(preset="b200 x2", fabric_manager={"version": "570.1", "state": "failed"})
    assert fabric("nv-fabricmanager", "--version").stdout.strip() == "Fabric Manager version is : 570.1"
    unit = fabric("systemctl", "show", "nvidia-fabricmanager.service").stdout
    assert "LoadState=loaded\nActiveState=failed\n" in unit


def test_ghosts_hold_memory_and_may_bear_a_pid_that_is_not_here(gpus):
    ghosts = [{"gpu": 0, "mib": 900}, {"gpu": 1, "mib": 70, "pid": 4194999}]
    gpus.says(preset="b200 x2", ghosts=ghosts)

    assert gpus.used() == [900, 70]
    assert gpus.ask(*APPS).stdout == "4194999, [Not Found], 70 MiB\n"


def test_some_containers_list_no_process_at_all(gpus, sleeper):
    gpus.says(preset="b200 x2", apps="hidden")
    gpus.held_by(sleeper.pid, {"0": 5})

    assert (gpus.used(), gpus.ask(*APPS).stdout) == ([5, 0], "")


def test_the_list_names_the_same_uuids_as_the_query(gpus):
    gpus.says(preset="b200 x2")
    uuids = gpus.ask("--query-gpu=uuid", "--format=csv,noheader").stdout.split()

    assert gpus.ask("-L").stdout == "".join(f"GPU {i}: NVIDIA B200 (UUID: {u})\n" for i, u in enumerate(uuids))


@pytest.mark.parametrize(
    ("preset", "row"),
    [
        ("b200 x4", ["GPU1", "NV18", " X ", "NV18", "NV18", "0-63", "0"]),
        ("rtx-pro-6000 x4", ["GPU1", "NODE", " X ", "SYS", "SYS", "0-63", "0"]),
        ("rtx-pro-6000 x2", ["GPU1", "PHB", " X ", "0-63", "0"]),
    ],
)
def test_the_topology_shows_what_links_the_gpus(gpus, preset, row):
    gpus.says(preset=preset)

    lines = gpus.ask("topo", "-m").stdout.splitlines()

    lines[0] = lines[0].replace("\x1b[4m", "").replace("\x1b[0m", "")  # newer drivers underline it
    assert lines[0].startswith("\tGPU0\tGPU1")
    assert lines[0].endswith("\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID")
    assert lines[2].split("\t")[: len(row)] == row


@pytest.mark.parametrize(
    ("told", "count", "said"),
    [
        ({"preset": "b300 x1"}, 19, "\t Link 17: 53.125 GB/s"),
        ({"preset": "rtx-pro-6000 x1"}, 0, ""),
        ({"preset": "b200 x1", "no_links": True}, 2, "Unable to retrieve NVLink information as all links are inActive"),
    ],
)
def test_links_are_printed_where_there_are_some(gpus, told, count, said):
    gpus.says(**told)

    lines = gpus.ask("nvlink", "-s").stdout.splitlines()

    assert len(lines) == count
    assert said == (lines[-1] if lines else "")


@pytest.mark.parametrize(
    ("driver", "said"), [("595.71.05", "Driver Version: 595.71.05"), ("610.43.02", "KMD Version: 610.43.02")]
)
def test_the_heading_for_people_changed_with_driver_610(gpus, driver, said):
    gpus.says(preset="rtx-pro-6000 x1", driver=driver)

    heading = gpus.ask().stdout

    assert said in heading
    assert "NVIDIA RTX PRO 6000 Blac..." in heading
