"""The program that signals processes on a host: only those that are still the ones that were meant."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy import host

PROGRAM = host.source("end")
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


def ticks(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[19])


@contextmanager
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            yield process
        finally:
            process.kill()


def send(name: str, *targets: tuple[int, int], prefix: list[str] | None = None) -> subprocess.CompletedProcess[str]:
    python = "/usr/bin/python3" if prefix else sys.executable
    argv = [*(prefix or []), python, "-I", "-c", PROGRAM, name, json.dumps(targets)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize("name", ["TERM", "KILL"])
def test_the_process_that_is_meant_gets_its_signal(name):
    with sleeper() as process:
        assert json.loads(send(name, (process.pid, ticks(process.pid))).stdout) == [process.pid]
        assert process.wait(timeout=10) == -getattr(signal, f"SIG{name}")


def test_another_process_with_that_pid_and_one_that_is_gone_are_left_alone():
    with sleeper() as process, sleeper() as gone:
        was = (gone.pid, ticks(gone.pid))
        gone.kill()
        gone.wait(timeout=10)
        done = send("KILL", (process.pid, ticks(process.pid) - 1), was)
        assert (done.returncode, json.loads(done.stdout)) == (0, [])
        assert process.poll() is None


@pytest.mark.skipif(os.geteuid() != 0, reason="another user is needed, so root")
def test_one_that_may_not_be_signalled_is_named_and_the_others_get_theirs():
    with sleeper() as ours, subprocess.Popen([*NOBODY, "sleep", "60"]) as theirs:
        targets = (ours.pid, ticks(ours.pid)), (theirs.pid, ticks(theirs.pid))
        try:
            done = send("TERM", *targets, prefix=NOBODY)
            assert done.returncode == 1
            assert json.loads(done.stdout) == [theirs.pid]
            assert done.stderr.strip() == f"another user's, and not ours to signal: pid {ours.pid}"
            assert ours.poll() is None
        finally:
            theirs.kill()
