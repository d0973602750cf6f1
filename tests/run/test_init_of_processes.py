"""`deploy init --from HOST:PID`: what a person's own script has started becomes a profile, and that profile serves."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import places
from tests.fleet import TestHost
from tests.places import Place
from tests.project import EXAMPLES, FAKE, Project, free_port, until

OVER_SSH = pytest.param("ssh", marks=[pytest.mark.sshd, pytest.mark.namespace])
CANARY = "canary-7d793037a076"
SCRIPT = """\
#!/bin/bash
cd "{folder}"
source venv/bin/activate
export NCCL_DEBUG=INFO OMP_NUM_THREADS=1 HF_TOKEN={canary} EDITOR=vi
ARGS=(--fake lifetime=120 --fake children=1 --mem-fraction-static=0.5)
nohup python3 -m sglang.launch_server \\
    --model-path ./target --served-model-name tiny --port {port} \\
    --speculative-algorithm EAGLE3 --speculative-draft-model-path draft \\
    --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 \\
    --api-key {canary}-key "${{ARGS[@]}}" > log 2>&1 < /dev/null &
echo $! > pid
"""


SET_UP = """
import sys, venv
from pathlib import Path
folder, fake, examples, script = Path(sys.argv[1]), *sys.argv[2:]
venv.create(folder / "venv", symlinks=True)
(site,) = (folder / "venv/lib").glob("python*/site-packages")
(site / "sglang").mkdir()
(site / "sglang/__init__.py").touch()
(site / "sglang/launch_server.py").write_text(
    f"import runpy, sys; sys.path.insert(0, {str(Path(fake).parent)!r}); "
    f"runpy.run_path({fake!r}, run_name='__main__')"
)
(site / "sglang-0.5.23.dist-info").mkdir()
(site / "sglang-0.5.23.dist-info/METADATA").write_text("Metadata-Version: 2.1\\nName: sglang\\nVersion: 0.5.23\\n")
for name in ("target", "draft"):
    (folder / name).symlink_to(f"{examples}/{name}")
(folder / "launch.sh").write_text(script)
"""


@pytest.fixture(params=["local", OVER_SSH])
def place(request: pytest.FixtureRequest) -> Place:
    if request.param == "local":
        return places.here()
    (host,) = request.getfixturevalue("fleet")(1)
    return places.over_ssh(host)


@pytest.fixture
def served(place: Place, tmp_path: Path) -> Iterator[Path]:
    """A folder on the host with a virtual environment in which `sglang` is the fake server, and a script that has
    started it there.
    """
    folder = tmp_path / "served"
    script = SCRIPT.format(folder=folder, port=free_port(), canary=CANARY)
    place.python(SET_UP, str(folder), str(FAKE), str(EXAMPLES), script)
    place.inside("bash", str(folder / "launch.sh"))
    until(lambda: "fired up" in place.inside("cat", str(folder / "log")), what="the fake server serves")
    yield folder
    place.inside("kill", "-9", pid_of(place, folder))
    place.inside("rm", "-r", str(folder))


def pid_of(place: Place, folder: Path) -> str:
    return place.inside("cat", str(folder / "pid")).strip()


def child_of(place: Place, pid: str) -> str:
    return place.inside("sh", "-c", 'cat "/proc/$1/task/$1/children"', "sh", pid).split()[0]


def test_a_running_server_becomes_a_profile_that_serves(place: Place, served: Path, tmp_path: Path) -> None:
    with places.project_on(tmp_path / "project", place) as project:
        child = child_of(place, pid_of(place, served))
        done = project.run("init", "--from", f"{place.name}:{child}", "profile=taken", "--json")
        assert (done.code, done.err) == (0, ""), done.err
        _is_the_profile(place, served, project, done.json)
        assert f"{child} is a part of the server {pid_of(place, served)}" in done.json["notes"][0]
        words = ["profile=taken", f"port={free_port()}", "ready.patience=5", "args.fake=lifetime=60"]
        secrets = {"HF_TOKEN": "x", "API_KEY": "another-key"}
        up = project.run("up", *words, "-y", env=secrets)
        assert (up.code, "accept length 3.00" in up.err) == (0, True), up.err
        assert project.run("down", "profile=taken", "-y").code == 0


def _is_the_profile(place: Place, served: Path, project: Project, told: dict[str, Any]) -> None:
    made = project.run("profile", "show", "taken", "--json").json
    local = place.host.get("transport") == "local"
    assert made["engine"]["python"] == str(served / "venv/bin/python3")
    assert made["model"] == {"path": str(served / "target"), "name": "tiny"}
    assert made["draft"]["path"] == (str(served / "draft") if local else f"{place.name}:{served / 'draft'}")
    assert (made["nccl"]["DEBUG"], made["hosts"]) == ("INFO", place.name)
    assert made["env"]["OMP_NUM_THREADS"] == "1"
    assert not set(made["env"]) & {"EDITOR", "PATH", "HOME", "HF_TOKEN", "SSH_CONNECTION", "VIRTUAL_ENV"}
    assert made["secrets"] == {"API_KEY": "api-key", "HF_TOKEN": "env"}
    assert made["args"]["fake"] == ["lifetime=120", "--fake", "children=1"]
    written = (project.folder / "profiles/taken.yaml").read_text()
    assert CANARY not in f"{json.dumps(told)}{written}"
    differences = {one["what"] for one in told["differences"]}
    assert differences <= {
        "program", "--model-path", "--speculative-draft-model-path", "--api-key", "--config", "--host",
        "SGLANG_CUDA_COREDUMP_BEFORE_CRASH", "SPT_NOENV",
    }  # fmt: skip


WRONG = [
    ("localhost:4194304", "localhost has no process 4194304 that can be seen from here"),
    ("localhost:1", "process 1 on localhost is no server, and every process descends from it"),
    ("no.such.host.invalid:1", "no.such.host.invalid"),
    ("launch-that-is-not-there.sh", "cannot be read"),
]


@pytest.mark.parametrize(("origin", "why"), WRONG)
def test_what_is_not_there_is_told(tmp_path: Path, origin: str, why: str) -> None:
    project = Project(tmp_path / "project")
    done = project.run("init", "--from", origin)
    assert (done.code in (2, 3), why in done.err) == (True, True), done.err
    assert not (project.folder / "profiles").exists()


def test_a_port_instead_of_a_process_is_told_with_the_process(tmp_path: Path) -> None:
    project = Project(tmp_path / "project")
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        port = listening.getsockname()[1]
        if Path(f"/proc/{port}").exists():
            pytest.skip("there is a process of that number")
        done = project.run("init", "--from", f"localhost:{port}")
    assert (done.code, f"it is a port there, of process {os.getpid()}" in done.err) == (2, True), done.err


@pytest.mark.sshd
@pytest.mark.namespace
def test_a_process_of_another_user_is_told_with_the_way_out(
    fleet: Callable[[int], list[TestHost]], tmp_path: Path
) -> None:
    (host,) = fleet(1)
    host.inside("useradd", "--create-home", "--password", "*", "--shell", "/bin/sh", "other")
    try:
        project = Project(tmp_path / "project", {host.name: places.over_ssh(host, user="other").host})
        pid = host.inside("sh", "-c", "sleep 300 < /dev/null > /dev/null 2>&1 & echo $!").strip()
        done = project.run("init", "--from", f"{host.name}:{pid}")
        host.inside("kill", pid)
        told = f"process {pid} on {host.name} is root's; other may not read"
        assert (done.code, told in done.err) == (2, True), done.err
        assert f"deploy init --from root@{host.address}:{pid}" in done.err
    finally:
        host.inside("userdel", "--remove", "--force", "other")


def test_a_server_without_an_engine_is_taken_with_its_whole_command(tmp_path: Path) -> None:
    project = Project(tmp_path / "project")
    port = free_port()
    argv = [sys.executable, str(FAKE), "--model-path", str(EXAMPLES / "target"), "--port", str(port)]
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen([*argv, "--fake", "lifetime=60"], stdout=log, stderr=log, cwd=tmp_path)
    try:
        until(lambda: "fired up" in (tmp_path / "log").read_text(), what="the fake server serves")
        done = project.run("init", "--from", f"localhost:{server.pid}", "profile=taken", "--json")
        assert (done.code, done.err) == (0, ""), done.err
        made = project.run("profile", "show", "taken", "--json").json
        assert (made["engine"]["name"], made["port"]) == ("command", port)
        assert made["args"]["argv"] == [*argv[:3], "{model}", "--port", "{port}", "--fake", "lifetime=60"]
        assert [one["what"] for one in done.json["differences"]] == []
    finally:
        server.send_signal(signal.SIGKILL)
        server.wait()


SERVER = "exec -a llama-server tail -f /dev/null"
BELOW = [
    ([f"({SERVER}) & echo $!"], ""),
    ([f"({SERVER}) & echo $!"] * 2, "is no server, and 2 servers descend from it"),
    ([f"setsid bash -c '{SERVER}' & echo $!"], "is no server, and one descends from it, in another session"),
]


@pytest.mark.parametrize(("starts", "why"), BELOW)
def test_only_the_one_server_below_a_process_is_taken(tmp_path: Path, starts: list[str], why: str) -> None:
    project = Project(tmp_path / "project")
    shell = subprocess.Popen(["bash", "-c", "\n".join([*starts, "wait"])], stdout=subprocess.PIPE, text=True)
    assert shell.stdout
    pids = [int(shell.stdout.readline()) for _ in starts]
    try:
        until(lambda: all(_cmdline(pid).startswith(b"llama-server") for pid in pids), what="they run")
        done = project.run("init", "--from", f"localhost:{shell.pid}", "profile=x", "model=/m", "--json")
        if why:
            assert (done.code, why in done.err) == (2, True), done.err
            assert [pid for pid in pids if f"--from localhost:{pid}" not in done.err] == []
            assert not (project.folder / "profiles").exists()
        else:
            assert f"{shell.pid} is a part of the server {pids[0]}, which was taken" in done.json["notes"], done.err
    finally:
        for pid in (*pids, shell.pid):
            os.kill(pid, signal.SIGKILL)
        shell.communicate()


def _cmdline(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()
