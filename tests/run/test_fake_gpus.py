"""GPUs in whole runs: how many there are, who holds them, and whether their memory comes back; by a fake nvidia-smi."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.project import PATIENCE, ROOT, Project, with_run

GPUS = "rtx-pro-6000 x8"
USED = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]


class Machine:
    """A project on this machine, which has the GPUs that a state folder tells of."""

    def __init__(self, project: Project) -> None:
        self.project, self.state = project, project.folder / "gpus"
        (self.state / "holders").mkdir(parents=True)
        project.environ["PATH"] = f"{ROOT / 'tests' / 'fake-bin'}:{os.environ['PATH']}"
        project.environ["FAKE_GPU_STATE"] = str(self.state)
        self.has(preset=GPUS)

    def has(self, **told: Any) -> None:
        (self.state / "gpus.json").write_text(json.dumps(told))

    def profile(self, gpus: int = 8, **fields: Any) -> None:
        ready = {"deadline": 30, "stall": 15, "patience": 20}
        self.project.fake(gpus=gpus, parallel={"tp": gpus}, **{"ready": ready, **fields})

    def used(self) -> list[int]:
        """MiB in use on each GPU."""
        told = subprocess.run(USED, env=self.project.environ, capture_output=True, text=True, check=True).stdout
        return [int(line) for line in told.split()]

    @contextmanager
    def somebody(self, *gpus: int) -> Iterator[subprocess.Popen[bytes]]:
        """Somebody else's process that holds memory of these GPUs."""
        with subprocess.Popen(["sleep", "600"]) as process:
            ticks = int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19])
            holder = {
                "pid": process.pid,
                "start_ticks": ticks,
                "name": "train",
                "mib": {str(gpu): 60000 for gpu in gpus},
            }
            (self.state / "holders" / f"{process.pid}.json").write_text(json.dumps(holder))
            try:
                yield process
            finally:
                process.kill()

    def said(self, step: str) -> list[str]:
        """What a step said and came to in the last run."""
        return [event["text"] for event in self.project.events() if event.get("step") == step and event.get("text")]


@pytest.fixture
def machine(project: Project) -> Machine:
    return Machine(project)


def test_a_server_takes_all_gpus_and_gives_them_back(machine: Machine) -> None:
    machine.profile(fake={"children": 8})
    done = machine.project.run("up", "profile=fake")
    assert (done.code, machine.used()) == (0, [40000] * 8), done.err
    assert machine.project.run("up", "profile=fake").code == 0, "our own server is nobody else's"
    done = machine.project.run("restart")
    assert (done.code, machine.used()) == (0, [40000] * 8), done.err
    done = machine.project.run("down")
    assert (done.code, machine.used()) == (0, [0] * 8), done.err
    assert "8 GPUs free, measured" in done.err


REFUSED: dict[str, tuple[Mapping[str, Any], str]] = {
    "there are fewer than are wanted": ({"preset": "rtx-pro-6000 x4"}, "4 GPUs, 8 are wanted"),
    "there is only one": ({"preset": "b200"}, "1 GPU, 8 are wanted"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_before_anything_is_touched_it_says_that(machine: Machine, case: str) -> None:
    told, words = REFUSED[case]
    machine.profile()
    assert machine.project.run("up", "profile=fake").code == 0
    before = machine.project.status()
    machine.has(**told)
    done = machine.project.run("up", "profile=fake", "env.X=1")
    assert (done.code, words in done.err) == (5, True), done.err
    assert (machine.project.status()["pid"], len(with_run(before["run"]))) == (before["pid"], 2)


def test_somebody_else_on_a_gpu_is_named_and_left_alone_unless_evicted(machine: Machine) -> None:
    machine.profile()
    with machine.somebody(3, 5) as other:
        done = machine.project.run("up", "profile=fake")
        assert (done.code, other.poll()) == (5, None), done.err
        for gpu in (3, 5):
            assert f"GPU {gpu} is held by pid {other.pid} of" in done.err
        done = machine.project.run("up", "profile=fake", "evict=yes")
        assert (done.code, other.wait(PATIENCE)) == (0, -15), done.err
    with machine.somebody(0) as other:
        done = machine.project.run("restart")
        assert (done.code, other.poll()) == (5, None), "it was evicted once; a restart may not evict the next one"


def test_somebody_else_on_a_gpu_that_is_not_wanted_does_not_matter(machine: Machine) -> None:
    machine.profile(gpus=4)
    with machine.somebody(6):
        done = machine.project.run("up", "profile=fake")
        assert (done.code, machine.used()) == (0, [40000] * 4 + [0, 0, 60000, 0]), done.err


def test_memory_that_lingers_after_our_server_is_waited_for(machine: Machine) -> None:
    machine.has(preset=GPUS, linger_seconds=3)
    machine.profile()
    assert machine.project.run("up", "profile=fake").code == 0
    done = machine.project.run("restart", "-v")
    assert done.code == 0, done.err
    assert machine.said("free")[0].startswith("waiting: GPU 0 is held by no process that nvidia-smi names, 40000 MiB")
    assert machine.used() == [40000] * 8, "the new server's, and no longer twice as much"


def test_a_little_memory_is_the_driver_s_own(machine: Machine) -> None:
    machine.has(preset=GPUS, ghosts=[{"gpu": 2, "mib": 900}])
    machine.profile()
    assert machine.project.run("up", "profile=fake").code == 0


@pytest.mark.parametrize("failure", ["no-driver", "mismatch"])
def test_gpus_that_cannot_be_seen_are_unknown_and_that_is_told(machine: Machine, failure: str) -> None:
    machine.has(preset=GPUS, failure=failure)
    machine.profile()
    done = machine.project.run("check", "profile=fake", "--json")
    found = {row["check"]: row["verdict"] for row in done.json}
    assert (done.code, found["gpus"]) == (10, "UNKNOWN"), done.err
    done = machine.project.run("up", "profile=fake")
    assert (done.code, "UNKNOWN gpus: the GPUs cannot be seen" in done.err) == (0, True), done.err
    assert machine.said("free")[-1].endswith("free, measured; the GPUs cannot be seen"), "what was not seen is not free"


def test_a_sick_host_is_told_at_once_with_a_profile_and_without(machine: Machine) -> None:
    manager = {"version": "570.86.15", "state": "failed"}
    faults = {"*": ["fabric-not-started"], "2": ["ecc"], "5": ["remap-failed", "hot"], "7": ["lost"]}
    machine.has(preset="b200 x8", faults=faults, fabric_manager=manager)
    machine.profile()
    done = machine.project.run("check", "profile=fake", "--json")
    found = {row["what"].partition(":")[0]: row for row in done.json if row["verdict"] != "PASS"}
    assert done.code == 5, done.err
    assert found["GPU 0-6"]["check"] == "fabric", "the lost one is in a state of its own"
    assert found["GPU 0-6"]["remedy"].startswith("install nvidia-fabricmanager 570.172.08")
    ours = [row for row in done.json if row["what"].startswith(("GPU 2:", "GPU 5:", "GPU 7:"))]
    told = [(row["check"], row["verdict"]) for row in ours]
    assert sorted(told) == [("gpus", "FAIL"), ("gpus", "FAIL"), ("gpus", "WARN"), ("gpus", "WARN")]
    done = machine.project.run("check")
    assert (done.code, "GPU 7: fell off the bus" in done.out) == (5, True), "also without a profile"
