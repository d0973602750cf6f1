"""The program that looks at a host for evidence, run as it is sent, on real processes of this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy import host
from tests.project import PATIENCE, free_port, until

FAKE_BIN = Path(__file__).parents[1] / "fake-bin"
LOG = """\
[2026-11-30 10:00:00] server_args=ServerArgs(...)
[2026-11-30 10:00:01 TP0] Load weight begin. avail mem=94.12 GB
[2026-11-30 10:00:01 TP1] Load weight begin. avail mem=94.12 GB
gpu1:7:9 [1] NCCL INFO Bootstrap: Using eth0:10.0.0.1<0>
[2026-11-30 10:00:02 TP1] Scheduler hit an exception: Traceback (most recent call last):
RuntimeError: of rank 1
\rCapturing batches: 1/9\rCapturing batches: 2/9
(Worker_TP3 pid=77) INFO of vLLM's worker
"""
# A launcher with a child under an engine's title, one that is stopped, and one in a session of its own.
FAMILY = """
import os, socket, subprocess, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
nap = [sys.executable, "-c", "import time; print(0, flush=True); time.sleep(60)"]
def child(title, **more):
    one = subprocess.Popen([title, *nap[1:]], executable=sys.executable, stdout=subprocess.PIPE, **more)
    one.stdout.readline()
    return one
titled = child("sglang::scheduler_TP0")
stopped = child("sglang::scheduler_TP1")
os.kill(stopped.pid, 19)
stray = ["setsid", "sh", "-c", '"$0" -c "import time; time.sleep(60)" >/dev/null & echo $!', sys.executable]
orphan = int(subprocess.check_output(stray))
print(titled.pid, stopped.pid, orphan, flush=True)
sys.stdin.read()
for pid in (titled.pid, stopped.pid, orphan):
    os.kill(pid, 9)
"""


class Family:
    """Processes of a run in a folder, and the program's look at them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        environ = {"DEPLOY_SERVER": str(folder), "NCCL_DEBUG": "INFO", "HF_TOKEN": "not for evidence"}
        self.launcher = subprocess.Popen(
            [sys.executable, "-c", FAMILY, str(self.port)], env={**os.environ, **environ}, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, start_new_session=True, text=True,
        )  # fmt: skip
        assert self.launcher.stdout
        self.titled, self.stopped, self.orphan = map(int, self.launcher.stdout.readline().split())
        (folder / "pid").write_text(f"{self.launcher.pid} 1 boot\n")
        (folder / "server.log").write_text(LOG)

    def look(self, seconds: float = 8.0, path: str = "") -> dict[str, str]:
        """The texts by name, as the program prints them."""
        argv = [
            sys.executable,
            "-I",
            "-c",
            host.source("evidence"),
            str(self.folder),
            str(self.port),
            str(seconds),
            "/",
        ]
        environ = {**os.environ, "PATH": path or os.environ["PATH"]}
        done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=True, timeout=PATIENCE)
        *told, last = (json.loads(line) for line in done.stdout.splitlines())
        assert (last, done.stderr) == ({"end": True}, "")
        return {one["name"]: one["text"] for one in told}


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Family]:
    made = Family(tmp_path)
    yield made
    made.launcher.communicate()


def program(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_what_a_host_shows_of_a_run(family: Family) -> None:
    told = family.look()
    titles, connections = told["processes.txt"], told["connections.txt"].splitlines()
    assert [
        pid for pid in (family.launcher.pid, family.titled, family.stopped, family.orphan) if f"{pid} " not in titles
    ] == []
    assert "sglang::scheduler_TP0" in titles
    assert titles.count("stopped by a signal") == 1
    assert [line.split()[0] for line in connections if f":{family.port} " in line] == ["LISTEN"]
    assert connections[1].endswith(str(family.launcher.pid))
    assert told["server.log"] == LOG
    assert f"== environment of {family.titled}\nNCCL_DEBUG=INFO" in told["nccl.txt"]
    assert "Bootstrap: Using eth0" in told["nccl.txt"]
    assert "not for evidence" not in json.dumps(told)
    assert "MemAvailable" in told["memory.txt"]
    assert "Filesystem" in told["disks.txt"]
    assert [name for name, text in told.items() if "could not be looked at" in text or "not seen" in text] == []


def test_each_rank_keeps_its_last_lines_and_what_follows_them(family: Family) -> None:
    (family.folder / "server.log").write_text(LOG + "[2026-11-30 10:00:03 TP0] noise\n" * 100_000)
    ranks = dict(part.split("\n", 1) for part in family.look()["ranks.log"].split("== ")[1:])
    assert sorted(ranks) == ["TP0", "TP1", "Worker_TP3", "no rank"]
    assert "RuntimeError: of rank 1" in ranks["TP1"], "a traceback's lines name no rank"
    assert "Capturing batches: 2/9" in ranks["TP1"]
    assert ranks["TP0"].count("noise") == 60


def test_a_line_that_is_cut_is_left_out_since_it_may_end_in_a_secret(family: Family) -> None:
    (family.folder / "server.log").write_text("api_key='" + "k" * 70_000 + "'\nnext\n")
    assert family.look()["server.log"] == "next\n"


def test_what_hangs_is_told_and_the_rest_is_seen(family: Family, tmp_path: Path) -> None:
    state = tmp_path / "gpus"
    state.mkdir()
    (state / "gpus.json").write_text(json.dumps({"preset": "h200 x1", "failure": "hang"}))
    program(tmp_path / "bin", "nvidia-smi", f"FAKE_GPU_STATE={state} exec {sys.executable} {FAKE_BIN}/nvidia-smi")
    for name in ("py-spy", "df", "dmesg", "journalctl"):
        program(tmp_path / "bin", name, "exec sleep 61.25")
    before = time.monotonic()
    told = family.look(2.0, f"{tmp_path}/bin:{os.environ['PATH']}")
    assert time.monotonic() - before < 30
    assert told["nvidia-smi.txt"].strip() == "nvidia-smi: no answer within 1 s"
    assert told["py-spy.txt"].count("no answer within 1 s") == 4
    assert told["disks.txt"].count("df: no answer") == 2
    assert told["dmesg.txt"].count("no answer") == 2
    assert "sglang::scheduler_TP0" in told["processes.txt"]
    until(lambda: subprocess.run(["pgrep", "-f", "sleep 61.2[5]"], check=False).returncode == 1, what="none is left")


PYTHON_STACKS = [
    ("", "no py-spy"),
    ('echo "asked: $*"', "asked: dump --nonblocking --pid {pid}\n"),
    ("echo Permission denied >&2; exit 1", "Permission denied\n({spy} ended with status 1)"),
]


@pytest.mark.parametrize(("script", "said"), PYTHON_STACKS)
def test_python_stacks_are_asked_for_without_stopping_the_server(
    family: Family, tmp_path: Path, script: str, said: str
) -> None:
    spy = tmp_path / "bin" / "py-spy"
    if script:
        program(spy.parent, spy.name, script)
    told = family.look(path=f"{spy.parent}:/usr/bin:/bin")["py-spy.txt"]
    assert said.format(pid=family.titled, spy=spy) in told
    if script:
        assert told.index("scheduler_TP0") < told.index(f"== {family.launcher.pid}"), "schedulers come first"


KERNEL = [
    ({"dmesg": "echo '[1] Out of memory: Killed process 7'; seq 300"}, "Out of memory: Killed process 7"),
    ({"dmesg": "exit 1", "journalctl": "echo from the journal"}, "from the journal"),
    (
        {"dmesg": "echo 'read kernel buffer failed: Operation not permitted' >&2; exit 1"},
        "cannot be read, so nothing is known",
    ),
]


@pytest.mark.parametrize(("programs", "said"), KERNEL)
def test_a_kernel_that_may_not_be_heard_is_not_taken_for_one_that_said_nothing(
    family: Family, tmp_path: Path, programs: dict[str, str], said: str
) -> None:
    for name, script in {"journalctl": "exit 1", **programs}.items():
        program(tmp_path / "bin", name, script)
    assert said in family.look(path=f"{tmp_path}/bin:/usr/bin:/bin")["dmesg.txt"]


def test_a_folder_that_hangs_keeps_nobody_from_looking_at_the_rest(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pid")  # whoever opens it waits, as on a disk that is gone
    argv = [sys.executable, "-I", "-c", host.source("evidence"), str(tmp_path), "30000", "6"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=PATIENCE)
    told = {one["name"]: one["text"] for one in map(json.loads, done.stdout.splitlines()[:-1])}
    assert (len(told), "MemAvailable" in told["memory.txt"]) == (12, True)
    assert "could not be told" in told["processes.txt"], "that none is known is not told as none that lives"


GONE: list[dict[str, Any]] = [{"pid": None}, {"pid": "999999999 1 boot\n"}, {"pid": "rubbish"}, {"log": None}]


@pytest.mark.parametrize("case", GONE, ids=str)
def test_a_run_of_which_nothing_is_left_shows_what_there_is(tmp_path: Path, case: dict[str, Any]) -> None:
    for name, text in {"pid": "999999999 1 boot\n", "server.log": LOG, **case}.items():
        if text is not None:
            (tmp_path / name).write_text(text)
    argv = [sys.executable, "-I", "-c", host.source("evidence"), str(tmp_path), "30000", "8"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=PATIENCE)
    told = {one["name"]: one["text"] for one in map(json.loads, done.stdout.splitlines()[:-1])}
    assert told["processes.txt"] == "no process of the run lives\n"
    assert len(told) == 12


def test_who_looks_ends_when_nobody_listens(family: Family) -> None:
    argv = [sys.executable, "-I", "-c", host.source("evidence"), str(family.folder), str(family.port), "8"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as looking:
        assert looking.stdout
        looking.stdout.close()
        assert looking.wait(timeout=PATIENCE) == 0
    os.kill(family.stopped, signal.SIGCONT)
