"""`deploy hosts` of this machine: GPUs by a fake nvidia-smi, engines, deployments, who is at work; narrow terminals."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import socket
import struct
import subprocess
import termios
from pathlib import Path
from typing import Any

import pytest

from deploy.inventory import Host
from deploy.locking import lease
from deploy.transport.local import LocalTransport
from tests import places
from tests.project import LOCAL, PATIENCE, ROOT, Project, until

FAKE_SMI = f"{ROOT / 'tests' / 'fake-bin'}:{os.environ['PATH']}"


def gpus(project: Project, **told: Any) -> dict[str, str]:
    """The environment in which this machine has these GPUs."""
    state = project.folder / "gpus"
    (state / "holders").mkdir(parents=True)
    (state / "gpus.json").write_text(json.dumps(told))
    return {"PATH": FAKE_SMI, "FAKE_GPU_STATE": str(state)}


@pytest.mark.parametrize(("expected", "told"), [(8, ""), (7, "the inventory says 7"), (0, "")])
def test_gpus_are_counted_against_the_inventory(tmp_path: Path, expected: int, told: str) -> None:
    project = Project(tmp_path / "project", {"gpu1": {"transport": "local", "gpus": expected}})
    env = gpus(project, preset="rtx-pro-6000 x8")
    (row,) = project.run("hosts", "--json", env=env).json
    assert [one["count"] for one in row["gpus"]] == [8] and "6000" in row["gpus"][0]["name"] and row["driver"]
    shown = project.run("hosts", env=env)
    assert (shown.code, "8x NVIDIA" in shown.out, ("inventory says" in shown.out)) == (0, True, bool(told)), shown.out


def test_a_broken_driver_is_told_in_its_own_words(tmp_path: Path) -> None:
    project = Project(tmp_path / "project", {"gpu1": {"transport": "local", "gpus": 8}})
    (project.folder / "bin").mkdir()
    smi = project.folder / "bin" / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho 'Failed to initialize NVML: Driver/library version mismatch'\nexit 18\n")
    smi.chmod(0o755)
    done = project.run("hosts", env={"PATH": f"{smi.parent}:{os.environ['PATH']}"})
    assert (done.code, "mismatch" in done.out, "the inventory says 8" in done.out) == (0, True, True), done.out


def test_engines_of_profiles_deployments_and_who_is_at_work(tmp_path: Path) -> None:
    with places.project_on(tmp_path / "project", places.here()) as project:
        project.fake()
        project.profile("wrong", engine="sglang", nothing=1)  # is told by those who want it, not here
        assert project.run("up", "profile=fake").code == 0
        at = {**LOCAL["localhost"], "name": "here", "lock": str(project.folder / "lock"), "work": str(tmp_path)}
        with lease.take(Host.model_validate(at), LocalTransport(), "up profile=theirs"):
            (row,) = project.run("hosts", "--json").json
            assert f"(pid {os.getpid()}): up profile=theirs, since" in row["busy"]
            assert "up profile=theirs" in project.run("hosts").out
        (row,) = project.run("hosts", "--json").json
    assert row["busy"] is None
    assert [(one["deployment"], one["state"]) for one in row["deployed"]] == [("fake", "runs")]
    assert [one["engine"] for one in row["engines"] if one["python"].endswith("fake_server.py")] == ["sglang"]


def terminal(project: Project, command: str, columns: int) -> str:
    """What a terminal of that width is shown."""
    primary, secondary = pty.openpty()
    fcntl.ioctl(secondary, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    env = {key: value for key, value in project.environ.items() if key not in ("COLUMNS", "LINES")}
    with subprocess.Popen(
        project.argv(command), cwd=project.folder, env=env, stdout=secondary, stderr=secondary, stdin=secondary
    ) as process:
        os.close(secondary)
        told = b""
        try:
            while data := os.read(primary, 4096):
                told += data
        except OSError:  # how the end of a terminal is told
            pass
        process.wait(PATIENCE)
    os.close(primary)
    return told.decode().replace("\r\n", "\n")


@pytest.mark.parametrize(("command", "column"), [("hosts", "python"), ("status", "state")])
def test_a_narrow_terminal_gets_a_paragraph_for_each_row(command: str, column: str, tmp_path: Path) -> None:
    project = Project(tmp_path / "project")
    wide, narrow = terminal(project, command, 300), terminal(project, command, 20)
    assert wide.startswith("host") and len(wide.splitlines()) == 2
    assert "localhost" in narrow.splitlines()[0]
    assert any(line.startswith(f"  {column}") for line in narrow.splitlines())


def test_who_is_waited_for_is_told(tmp_path: Path) -> None:
    with socket.socket() as silent:  # accepts, and never says a word
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        at = {"address": "127.0.0.1", "port": silent.getsockname()[1]}
        project = Project(tmp_path / "p", {"gpu1": at, **LOCAL})
        primary, secondary = pty.openpty()
        with subprocess.Popen(
            project.argv("hosts"), cwd=project.folder, env={**project.environ, "DEPLOY_SSH_CONFIG": "/dev/null"},
            stdout=subprocess.DEVNULL, stderr=secondary, stdin=subprocess.DEVNULL,
        ) as process:  # fmt: skip
            os.close(secondary)
            assert until(lambda: os.read(primary, 4096)).startswith(b"waiting for gpu1")  # and a slow localhost
            process.kill()
        os.close(primary)
