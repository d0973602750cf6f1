"""Freeing a host: who holds the ports and the GPUs' memory, who is ended for it and who is not, and what is measured.

The step runs here, against a fake nvidia-smi; those that hold something are real processes.
"""

from __future__ import annotations

import json
import os
import pty
import pwd
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from deploy import plan
from deploy.deployment import state
from deploy.deployment.state import Deployment, Place, Run
from deploy.errors import NotReady
from deploy.events import Event
from deploy.inventory import Host
from deploy.locking import lease
from deploy.plan import Node
from deploy.profile import Profile
from deploy.remote import Remote
from deploy.steps.free import free
from deploy.transport.local import LocalTransport
from tests.project import PATIENCE, ROOT, Project, free_port, listens, until
from tests.run.test_fake_gpus import Machine, machine

GPUS = "rtx-pro-6000 x8"
USER = pwd.getpwuid(os.getuid()).pw_name
LISTEN = """
import socket, sys, time
with socket.create_server(("127.0.0.1", int(sys.argv[1]))):
    time.sleep(600)
"""
DEAF = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('deaf', flush=True)\ntime.sleep(600)"
# Its first thread ends, and another one lives: /proc calls it a zombie, and what it holds it holds.
HEADLESS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
ctypes.CDLL(None).pthread_exit(None)
"""

__all__ = ["machine"]  # a fixture


def stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


@dataclass
class Bench:
    """A host with GPUs, and one node that wants them."""

    folder: Path
    port: int
    remote: Remote
    events: list[Event]

    def has(self, **told: Any) -> None:
        (self.folder / "gpus.json").write_text(json.dumps({"preset": GPUS, **told}))

    def node(self, gpus: int = 2, patience: float = 2.0, **fields: Any) -> Node:
        wish = {"engine": "sglang", "model": "/m", "hosts": "all", "gpus": gpus, "port": self.port}
        wish |= {"parallel": {"tp": max(1, gpus)}, "ready": {"patience": patience}, **fields}
        made = plan.make({self.remote.host: Profile.model_validate({"name": "p", **wish})}, None, None)
        node = made.nodes[0]
        machine = state.read(self.remote)
        self.remote.place = Place(machine, node.deployment, "run")
        return node

    def goes_down(self) -> None:
        """Its run was there already, as for `down`."""
        run = Run("run", "", None, None, None, "", "", alive=False, exit="", stopped="")
        machine = replace(self.remote.place.machine, deployments={"p": Deployment("p", run, None, ("run",))})
        self.remote.place = replace(self.remote.place, machine=machine)

    @contextmanager
    def holding(self, *gpus: int, program: str = "", mib: int = 60000) -> Iterator[subprocess.Popen[bytes]]:
        """Somebody's process that has memory of these GPUs."""
        argv = [sys.executable, "-c", program] if program else ["sleep", "600"]
        with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
            if program == DEAF and process.stdout:
                process.stdout.readline()
            holder = {"pid": process.pid, "start_ticks": int(stat(process.pid)[19]), "name": "train"}
            file = self.folder / "holders" / f"{process.pid}.json"
            file.write_text(json.dumps({**holder, "mib": {str(gpu): mib for gpu in gpus}}))
            try:
                yield process
            finally:
                process.kill()

    def freed(self) -> Mapping[str, Any]:
        """What the step put into the record."""
        found: Mapping[str, Any] = next(event.facts["freed"] for event in self.events if "freed" in event.facts)
        return found


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    (tmp_path / "holders").mkdir()
    monkeypatch.setenv("PATH", f"{ROOT / 'tests' / 'fake-bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_GPU_STATE", str(tmp_path))
    said = {"name": "here", "transport": "local", "work": str(tmp_path / "work"), "lock": str(tmp_path / "lock")}
    where, events, reached = Host.model_validate(said), list[Event](), LocalTransport("here")
    remote = Remote(where, reached, events.append, threading.Event())
    with lease.take(where, reached, "a test") as remote.lease:
        made = Bench(tmp_path, free_port(), remote, events)
        made.has()
        yield made


def refused(bench: Bench, node: Node) -> tuple[NotReady, float]:
    """How it gave up, and after how many seconds."""
    began = time.monotonic()
    with pytest.raises(NotReady) as error:
        free(node, bench.remote)
    return error.value, time.monotonic() - began


# ---- what is free ------------------------------------------------------------------------------------------------


def test_it_says_what_it_measured_and_records_it(bench: Bench) -> None:
    told = free(bench.node(), bench.remote)
    assert told.startswith(f"port {bench.port} and 2 GPUs free, measured: 0 MiB in use, 0 after ")
    found = bench.freed()
    assert (found["ports"], found["ended"], found["bytes_after"]) == ([bench.port], [], {0: 0, 1: 0})


def test_memory_that_a_driver_is_slow_to_give_back_is_waited_for(bench: Bench) -> None:
    bench.has(linger_seconds=1)
    with bench.holding(0, 1) as old:
        pass
    assert old.poll() == -9
    free(bench.node(patience=60), bench.remote)
    found = bench.freed()
    assert found["bytes_before"] == {0: 60000 << 20, 1: 60000 << 20}
    assert found["bytes_after"] == {0: 0, 1: 0}
    assert found["seconds"] >= 1
    waiting = [event.text for event in bench.events if event.text.startswith("waiting")]
    assert waiting[0] == "waiting: GPU 0 is held by no process that nvidia-smi names, 60000 MiB"


@pytest.mark.parametrize(
    ("told", "env", "words"),
    [
        ({"ghosts": [{"gpu": 1, "mib": 900}]}, {}, "2 GPUs free, measured: 900 MiB in use, 900 after"),
        ({"ghosts": [{"gpu": 0, "mib": 9000}]}, {"CUDA_VISIBLE_DEVICES": "4,5"}, "2 GPUs free, measured: 0 MiB"),
        ({"faults": {"5": ["lost"]}}, {}, "2 GPUs free, measured"),
        ({"fields": {"0": {"memory.used": "[N/A]"}}}, {}, "no process is on the GPUs, and GPU 0 does not tell"),
        ({"failure": "no-driver"}, {}, "free, measured; the GPUs cannot be seen"),
        ({}, {"CUDA_VISIBLE_DEVICES": "MIG-1234"}, "free, measured; what MIG instances have in use is not told"),
    ],
    ids=["what a display keeps", "other GPUs", "a lost one elsewhere", "none told", "no driver", "MIG"],
)
def test_it_is_free_with(bench: Bench, told: Mapping[str, Any], env: Mapping[str, str], words: str) -> None:
    bench.has(**told)
    assert words in free(bench.node(env=env), bench.remote)


@pytest.mark.full
def test_gpus_that_nvidia_smi_is_late_to_show_are_waited_for(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, late = bench.folder / "bin" / "nvidia-smi", bench.folder / "late"
    slow.parent.mkdir()
    slow.write_text(f'#!/bin/sh\n[ -e {late} ] && exec {ROOT / "tests/fake-bin/nvidia-smi"} "$@"\nexec sleep 600\n')
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")

    def once_it_waits() -> None:
        until(lambda: waits(bench), 120, "it waits")
        late.touch()

    sight = threading.Thread(target=once_it_waits)
    sight.start()
    told = free(bench.node(patience=600), bench.remote)
    sight.join()
    assert "2 GPUs free, measured: 0 MiB in use, 0 after" in told


def waits(bench: Bench) -> bool:
    return any(event.text.startswith("waiting: the GPUs cannot be seen: ") for event in bench.events)


# ---- what is not -------------------------------------------------------------------------------------------------

# (state of the GPUs, fields of the profile, whether it waits at all, words of the error, its evidence and its remedy)
HELD: dict[str, tuple[Mapping[str, Any], Mapping[str, Any], bool, Sequence[str]]] = {
    "by nobody": (
        {"ghosts": [{"gpu": 1, "mib": 9000}]},
        {},
        True,
        ("not free after", "no process is named", "GPU 1 is held by no process", "does not move", "reset of the GPU"),
    ),
    "by nobody, beside what is named": (
        {"ghosts": [{"gpu": 1, "mib": 9000}, {"gpu": 1, "mib": 500, "pid": 4194304}]},
        {},
        True,
        ("GPU 1 is held by no process that nvidia-smi names, 9000 MiB", "pid 4194304 of another pid namespace"),
    ),
    "by a pid that is not here": (
        {"ghosts": [{"gpu": 0, "mib": 9000, "pid": 4194304}]},
        {"evict": True},
        True,
        ("cannot be seen from here", "GPU 0 is held by pid 4194304 of another pid namespace", "9000 MiB", "docker ps"),
    ),
    "on a GPU that the variable chooses": (
        {"ghosts": [{"gpu": 7, "mib": 9000}]},
        {"env": {"CUDA_VISIBLE_DEVICES": "6,7"}},
        True,
        ("GPU 7 is held by no process",),
    ),
    "by a GPU that fell off the bus": (
        {"failure": "fallen-off", "failed_gpu": 1},
        {"gpus": 8},
        False,
        ("cannot be freed by waiting", "does not answer any more", "Unknown Error", "Xid"),
    ),
    "by one that is listed, and lost": (
        {"faults": {"1": ["lost"]}},
        {},
        False,
        ("cannot be freed by waiting", "GPU 1 has fallen off the bus", "reboot"),
    ),
    "by one that the driver wants to be reset": (
        {"ghosts": [{"gpu": 1, "mib": 9000}], "faults": {"1": ["wants-reset"]}},
        {},
        False,
        ("cannot be freed by waiting", "GPU 1 is to be recovered, the driver says: Reset"),
    ),
    "by one whose memory is faulty": (
        {"ghosts": [{"gpu": 1, "mib": 9000}], "faults": {"1": ["ecc", "remap-pending"], "5": ["lost"]}},
        {},
        True,
        ("GPU 1 has had 3 errors of memory (ECC)", "GPU 1 has rows of memory that a reset", "it does not move", "Xid"),
    ),
}


@pytest.mark.parametrize("case", HELD)
def test_it_is_held(bench: Bench, case: str) -> None:
    told, fields, waits, words = HELD[case]
    bench.has(**told)
    error, seconds = refused(bench, bench.node(**{"patience": 0.3 if waits else 600.0, **fields}))
    for word in words:
        assert word in str(error)
    assert seconds >= 0.3 if waits else seconds < 300


def test_somebody_else_s_process_is_named_at_once_and_left_alone(bench: Bench) -> None:
    with bench.holding(1) as other:
        error, _ = refused(bench, bench.node(patience=600))
        assert other.poll() is None
    assert f"GPU 1 is held by pid {other.pid} of " in error.evidence
    assert "60000 MiB" in error.evidence
    assert "evict=yes" in error.remedy


def test_what_our_own_launcher_wrote_down_is_ours_and_nobody_is_asked_for_it(bench: Bench) -> None:
    """By that alone: its environment names no run. `stop` would have ended it."""
    node = bench.node(patience=0.3)
    run = Path(bench.remote.place.runs, "old")
    run.mkdir(parents=True)
    with bench.holding(1) as ours:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        (run / "pid").write_text(f"{ours.pid} {stat(ours.pid)[19]} {boot}\n")
        error, _ = refused(bench, node)
        assert ours.poll() is None
    assert "a process that was to end holds what we need" in error.what
    assert f"GPU 1 is held by pid {ours.pid}" in error.evidence


def test_where_nothing_is_launched_others_are_in_nobody_s_way(bench: Bench) -> None:
    """After `down`: the memory that was ours is waited for, and nobody is ended, whatever the profile says."""
    with bench.holding(1) as other:
        node = bench.node(evict=True)
        bench.goes_down()
        told = free(node, bench.remote)
        assert other.poll() is None
    assert told == f"what was ours is free, measured; not ours, and left alone: pid {other.pid} of {USER}"
    bench.has(ghosts=[{"gpu": 1, "mib": 9000}])
    node = bench.node(patience=0.3)
    bench.goes_down()
    assert "GPU 1 is held by no process" in refused(bench, node)[0].evidence


def test_one_whose_first_thread_ended_holds_what_it_holds(bench: Bench) -> None:
    with bench.holding(0, program=HEADLESS) as other:
        until(lambda: stat(other.pid)[0] == "Z", what="its first thread has ended")
        error, _ = refused(bench, bench.node(patience=600))
    assert f"GPU 0 is held by pid {other.pid} of " in error.evidence
    assert "(state Z: it waits in the kernel)" in error.evidence


# ---- who is ended ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("program", "ending"), [("", -signal.SIGTERM), (DEAF, -signal.SIGKILL)], ids=["hears", "deaf"])
def test_evicted_it_ends_and_others_live(bench: Bench, program: str, ending: int) -> None:
    with bench.holding(0, program=program) as other, bench.holding(5) as elsewhere:
        told = free(bench.node(evict=True), bench.remote)
        assert (other.wait(PATIENCE), elsewhere.poll()) == (ending, None)
    assert "60000 MiB in use, 0 after" in told
    assert bench.freed()["ended"] == [other.pid]


def test_one_that_is_stopped_is_evicted_too(bench: Bench) -> None:
    with bench.holding(0) as other:
        other.send_signal(signal.SIGSTOP)
        free(bench.node(evict=True), bench.remote)
        assert other.wait(PATIENCE) in (-signal.SIGTERM, -signal.SIGKILL)


@contextmanager
def listening(port: int) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", LISTEN, str(port)]) as process:
        until(lambda: listens(port), what="it listens")
        try:
            yield process
        finally:
            process.kill()


def test_every_port_that_the_server_will_take_counts(bench: Bench) -> None:
    rendezvous = free_port()
    args = {"nccl-port": rendezvous}
    with listening(rendezvous) as other:
        error, _ = refused(bench, bench.node(gpus=0, args=args))
        assert f"port {rendezvous} (rendezvous) is held by pid {other.pid} of " in error.evidence
        assert other.poll() is None
        told = free(bench.node(gpus=0, args=args, evict=True), bench.remote)
        assert other.wait(PATIENCE) == -signal.SIGTERM
    assert str(rendezvous) in told


def test_what_this_command_runs_under_is_never_ended(bench: Bench) -> None:
    """A notebook, say, from whose terminal the command was typed, and which has the port itself."""
    with socket.socket() as own:
        own.bind(("127.0.0.1", bench.port))
        own.listen()
        error, _ = refused(bench, bench.node(gpus=0, evict=True))
    assert f"pid {os.getpid()} of" in error.evidence
    assert "this command itself runs under it" in error.remedy


# ---- who is asked ------------------------------------------------------------------------------------------------


def answered(project: Project, answer: str, *words: str) -> tuple[int, str]:
    """How a command ends on a terminal where its question is answered, and what it says there."""
    primary, secondary = pty.openpty()
    environ = {**project.environ, "TERM": "dumb"}
    with subprocess.Popen(
        project.argv(*words), cwd=project.folder, env=environ, stdin=secondary, stdout=secondary, stderr=secondary
    ) as process:
        os.close(secondary)
        told = b""
        while part := _part(primary):
            told += part
            if b"End them?" in told and answer:
                os.write(primary, f"{answer}\n".encode())
                answer = ""
    os.close(primary)
    return process.returncode, told.decode()


def _part(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # EIO: the last one who had it open is gone
        return b""


def test_on_a_terminal_it_is_asked_before_anything_ends(machine: Machine) -> None:
    machine.profile(gpus=2, draft=None, speculative=None, bench={"prompts": []}, gates={})
    with machine.somebody(1) as other:
        code, told = answered(machine.project, "n", "up", "profile=fake")
        assert (code, other.poll()) == (5, None), told
        assert f"localhost: GPU 1 is held by pid {other.pid} of" in told
        code, told = answered(machine.project, "y", "up", "profile=fake")
        assert (code, other.wait(PATIENCE)) == (0, -signal.SIGTERM), told
    assert machine.project.told("freed")[0]["ended"] == [other.pid]
