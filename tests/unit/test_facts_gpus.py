"""The fact about GPUs, asked of a stand-in whose memory real processes hold."""

# mypy: allow-untyped-defs, allow-untyped-calls

import json
import os
import subprocess
from pathlib import Path

import pytest

from deploy import facts
from deploy.errors import RemoteFailed, TimedOut
from deploy.facts import gpus

BIN = Path(__file__).parents[1] / "fake-bin"


class Here(facts.Asks):
    """This machine with another PATH; it raises as a host does."""

    def __init__(self, path, state):
        self.env = {"PATH": path, "FAKE_GPU_STATE": str(state)}
        self.timeout = 20.0

    def run(self, *argv, ok=(0,), timeout=30.0):
        try:
            done = subprocess.run(argv, env=self.env, capture_output=True, text=True, check=False, timeout=self.timeout)
        except FileNotFoundError:
            raise RemoteFailed(f"{argv[0]} ended with status 127", status=127) from None
        except subprocess.TimeoutExpired:
            raise TimedOut(f"{argv[0]} took longer than {self.timeout} s", status=124) from None
        if done.returncode not in ok:
            raise RemoteFailed(f"{argv[0]} ended with status {done.returncode}", status=done.returncode)
        return done.stdout

    def python(self, source, *args, timeout=30.0):
        raise NotImplementedError


@pytest.fixture
def here(tmp_path):
    return Here(f"{BIN}:{os.environ['PATH']}", tmp_path)


def says(here, **told):
    Path(here.env["FAKE_GPU_STATE"], "gpus.json").write_text(json.dumps(told))


def test_eight_gpus_and_their_holder_are_read(here, tmp_path):
    says(here, preset="rtx-pro-6000 x8")
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    (tmp_path / "holders").mkdir()
    holder = {"pid": os.getpid(), "start_ticks": ticks, "name": "a, b", "mib": {"3": 91234}}
    (tmp_path / "holders" / "1.json").write_text(json.dumps(holder))

    found = gpus.read(here)

    assert found.all is not None
    assert [gpu.memory_used_mib for gpu in found.all] == [0, 0, 0, 91234, 0, 0, 0, 0]
    assert (found.all[3].name, found.all[3].memory_total_mib) == ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 97887)
    assert found.holders == (gpus.ComputeProcess(found.all[3].uuid, os.getpid(), "a, b", 91234),)
    assert found.error == ""


def test_idle_gpus_have_no_holder_which_is_not_unknown(here):
    says(here, preset="b200 x2")

    assert gpus.read(here).holders == ()


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"failure": "no-driver"}, "couldn't communicate with the NVIDIA driver"),
        ({"failure": "mismatch"}, "Driver/library version mismatch"),
        ({"failure": "fallen-off", "failed_gpu": 2}, "GPU0000:38:00.0: Unknown Error"),
        ({"failure": "no-devices"}, "No devices were found"),
    ],
)
def test_what_fails_is_unknown_with_its_own_words(here, told, said):
    says(here, preset="rtx-pro-6000 x8", **told)

    found = gpus.read(here)

    assert (found.all, found.holders) == (None, None)
    assert said in found.error


def test_memory_that_is_not_told_is_unknown(here):
    says(here, preset="b200 x1", fields={"0": {"memory.used": "[N/A]"}})

    found = gpus.read(here).all

    assert found is not None
    assert found[0].memory_used_mib is None


def test_a_host_without_nvidia_smi_is_told_plainly(here):
    here.env["PATH"] = "/nonexistent"

    assert gpus.read(here) == gpus.Gpus(None, None, "there is no nvidia-smi")


def test_an_nvidia_smi_that_hangs_is_told_too(here):
    says(here, preset="b200 x1", failure="hang")
    here.timeout = 1.0

    found = gpus.read(here)

    assert found.all is None
    assert "took longer than" in found.error
