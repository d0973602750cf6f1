"""The facts about GPUs against a real driver (`make test-gpu`): what it tells, and how its memory comes back."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from deploy import looking
from deploy.facts import About, Facts, gpu_health, gpus, topology
from deploy.inventory import Host
from deploy.remote import Remote
from deploy.transport.local import LocalTransport

MIB = 2048
HOLD = [sys.executable, str(Path(__file__).parents[1] / "gpu_memory.py")]


pytestmark = pytest.mark.gpu


def look() -> Facts:
    host = Host.model_validate({"name": "here", "transport": "local"})
    return looking.look(
        Remote(host, LocalTransport("here"), print, threading.Event()),
        About(),
        [gpus.FACT, gpu_health.FACT, topology.FACT],
    )


def used(index: int) -> int:
    found: Any = look()[gpus.FACT].all
    return found[index].memory_used_mib or 0


def test_all_three_answers_tell_of_the_same_gpus() -> None:
    seen = look()
    listed, healths, linked = seen[gpus.FACT], seen[gpu_health.FACT], seen[topology.FACT]
    assert listed.all
    assert healths.all
    assert [gpu.uuid for gpu in listed.all] == [gpu.uuid for gpu in healths.all]
    assert [gpu.memory_total_mib for gpu in listed.all] == [gpu.memory_total_mib for gpu in healths.all]
    assert (listed.error, healths.error, healths.attached) == ("", "", len(listed.all))
    assert healths.driver == listed.all[0].driver
    told = [healths.all[0].temperature_c, healths.all[0].power_w, healths.all[0].pcie_width, healths.all[0].reasons]
    assert None not in told, "every data centre GPU tells these"
    assert linked.devices is not None, linked.error
    assert {f"GPU{gpu.index}" for gpu in listed.all} <= set(linked.devices)


def test_memory_is_seen_with_its_holder_and_comes_back_after_its_death() -> None:
    before = used(0)
    with subprocess.Popen([*HOLD, "0", str(MIB)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"held\n"
        assert used(0) >= before + MIB
        named = look()[gpus.FACT].holders
        assert not named or holder.pid in {one.pid for one in named}, "unless a container lists nobody"
        holder.kill()
        holder.wait()
        deadline = time.monotonic() + 60
        while used(0) > before + 64:
            assert time.monotonic() < deadline, "its memory did not come back"
