"""`deploy status` over a real sshd: one connection, one channel, and a watch that outlives the connection."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fleet import Keys, TestHost, loopback
from tests.project import Project, until

BOUND = 60.0  # seconds; the machine may be busy


@pytest.fixture
def telling(keys: Keys) -> Iterator[TestHost]:
    """A host whose sshd logs every channel."""
    with loopback(keys, "LogLevel VERBOSE") as host:
        yield host


@pytest.fixture
def project(keys: Keys, telling: TestHost, tmp_path: Path) -> Project:
    at = {"address": telling.address, "port": telling.port, "user": telling.user, "key": telling.key}
    made = Project(tmp_path / "project", {"far": at})
    made.environ["DEPLOY_SSH_CONFIG"] = str(keys.config)
    return made


def counted(host: TestHost) -> list[int]:
    """How many logins the host had, and how many programs it started."""
    log = (Path(host.key).parent / next(_folders(host)) / "log").read_text()
    return [log.count("Accepted publickey"), log.count("Starting session")]


def _folders(host: TestHost) -> Iterator[str]:
    listens = f"ListenAddress {host.address}:{host.port}\n"
    for config in Path(host.key).parent.glob("loopback-*/sshd_config"):
        if listens in config.read_text():
            yield config.parent.name


def test_a_host_is_asked_by_one_program_over_one_connection(project, telling):
    done = project.run("status", "--json")
    assert done.code == 0, done.err
    assert [(row["host"], row["state"]) for row in done.json] == [("far", "nothing deployed")]
    assert counted(telling) == [1, 1]


def test_a_watch_keeps_its_connection_and_takes_a_new_one_when_it_is_lost(project, telling):
    out = project.folder / "watched"
    argv = project.argv("status", "--watch", "--every", "0.5", "--json", "--hosts", "far")
    with out.open("wb") as file:
        watch = subprocess.Popen(
            argv, cwd=project.folder, env=project.environ, stdin=subprocess.DEVNULL, stdout=file, stderr=file
        )
    try:
        until(lambda: len(rounds(out)) >= 3, BOUND, "three rounds")
        assert counted(telling)[0] == 1
        for pid in sessions(telling):
            os.kill(pid, signal.SIGKILL)
        until(lambda: counted(telling)[0] == 2 and states(out)[-1] == "nothing deployed", BOUND, "a new connection")
        watch.send_signal(signal.SIGINT)
        assert watch.wait(BOUND) == 0
    finally:
        watch.kill()
        watch.wait()
    assert set(states(out)) <= {"nothing deployed", "unreachable"}


def sessions(host: TestHost) -> list[int]:
    """The processes of an sshd that hold a connection each."""
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(host.pid)], capture_output=True, text=True, check=False)
    return [int(pid) for pid in found.stdout.split()]


def rounds(out: Path) -> list[Any]:
    return [json.loads(line) for line in out.read_text().splitlines(keepends=True) if line.endswith("\n")]


def states(out: Path) -> list[str]:
    return [row["state"] for one in rounds(out) for row in one["rows"]]
