"""The program that signals processes on a host: only those that are still the ones that were meant."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deploy import host
from tests.project import PATIENCE, until

PROGRAM = host.source("end")
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def ticks(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[19])


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


@contextmanager
def sleeper(*argv: str, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([*argv, "sleep", "60"], **options) as process:
        try:
            yield process
        finally:
            process.kill()


def send(name: str, targets: list[tuple[int, int]], *more: Any, prefix: tuple[str, ...] = ()) -> dict[str, list[int]]:
    python = "/usr/bin/python3" if prefix else sys.executable
    argv = [*prefix, python, "-I", "-c", PROGRAM, name, json.dumps(targets), *map(json.dumps, more)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, check=True)
    told: dict[str, list[int]] = json.loads(done.stdout)
    return told


@pytest.mark.parametrize("name", ["TERM", "KILL"])
def test_the_process_that_is_meant_gets_its_signal(name: str) -> None:
    with sleeper() as process:
        told = send(name, [(process.pid, ticks(process.pid))])
        assert told == {"sent": [process.pid], "refused": [], "left": []}
        assert process.wait(timeout=PATIENCE) == -getattr(signal, f"SIG{name}")


def test_another_process_with_that_pid_and_one_that_is_gone_are_left_alone() -> None:
    with sleeper() as process, sleeper() as gone:
        was = (gone.pid, ticks(gone.pid))
        gone.kill()
        gone.wait(timeout=PATIENCE)
        assert send("KILL", [(process.pid, ticks(process.pid) - 1), was])["sent"] == []
        assert process.poll() is None


def test_a_stopped_process_hears_that_it_shall_end() -> None:
    with sleeper() as process:
        process.send_signal(signal.SIGSTOP)
        until(lambda: state(process.pid) == "T", what="stopped")
        send("TERM", [(process.pid, ticks(process.pid))])
        assert process.wait(timeout=PATIENCE) == -signal.SIGTERM


def test_it_returns_as_soon_as_the_awaited_have_ended_and_a_zombie_has() -> None:
    with sleeper() as process:  # nobody reaps it before the end of the `with`
        meant, began = [(process.pid, ticks(process.pid))], time.monotonic()
        assert send("KILL", meant, meant, 50.0)["left"] == []
        assert time.monotonic() - began < 40


def test_it_names_who_of_the_awaited_lives_when_the_time_is_up() -> None:
    with sleeper() as process, sleeper() as other:
        awaited = [(process.pid, ticks(process.pid)), (other.pid, ticks(other.pid)), (other.pid, 1)]
        assert send("TERM", awaited[:1], awaited, 0.2)["left"] == [other.pid]


def test_a_process_whose_first_thread_ended_lives() -> None:
    code = (
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "ctypes.CDLL(None).syscall(60, 0)\n"  # exit of this thread alone
    )
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        until(lambda: state(process.pid) == "Z", what="its first thread to end")
        meant = [(process.pid, ticks(process.pid))]
        assert send("KILL", [], meant, 0.1)["left"] == [process.pid]
        assert send("KILL", meant, meant, 50.0) == {"sent": [process.pid], "refused": [], "left": []}


def test_a_kill_may_go_to_a_whole_group_and_to_no_other_one() -> None:
    """Where the kernel signals a group by a handle on its leader (6.9); else its members are left to the next look."""
    release = tuple(map(int, os.uname().release.split(".")[:2]))
    with sleeper(process_group=0) as leader, sleeper(process_group=leader.pid) as member, sleeper() as other:
        told = send("KILL", [(leader.pid, ticks(leader.pid))], [], 0, [leader.pid])
        assert (told["sent"], leader.wait(timeout=PATIENCE)) == ([leader.pid], -signal.SIGKILL)
        if release >= (6, 9):
            assert member.wait(timeout=PATIENCE) == -signal.SIGKILL
        assert other.poll() is None


@AS_ROOT
def test_one_that_may_not_be_signalled_is_named_and_the_others_get_theirs() -> None:
    with sleeper() as ours, sleeper(*NOBODY) as theirs:
        until(lambda: Path(f"/proc/{theirs.pid}").stat().st_uid == 65534, what="another user")
        targets = [(ours.pid, ticks(ours.pid)), (theirs.pid, ticks(theirs.pid))]
        told = send("TERM", targets, prefix=tuple(NOBODY))
        assert told == {"sent": [theirs.pid], "refused": [ours.pid], "left": []}
        assert ours.poll() is None


@AS_ROOT
def test_nobody_is_signalled_by_the_numbers_of_another_namespace() -> None:
    """/proc is still the outer one's there: its pids are other processes' in the system calls."""
    with sleeper() as meant:
        told = json.dumps([[meant.pid, ticks(meant.pid)]])
        argv = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-I", "-c", PROGRAM, "KILL", told]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert meant.poll() is None
    assert (done.returncode, "another pid namespace's" in done.stderr) == (1, True), done


# In a pid namespace of its own: a process is meant; at the very call that would signal it (after every check), it dies
# and another one gets its pid. Prints how the other one fares.
REUSED = """
import os, signal, subprocess, sys, time

def ticks(pid):
    with open(f"/proc/{pid}/stat") as stat:
        return int(stat.read().rpartition(") ")[2].split()[19])

def again(pid):
    while True:
        with open("/proc/sys/kernel/ns_last_pid", "w") as last:
            last.write(str(pid - 1))
        other = subprocess.Popen(["sleep", "60"])
        if other.pid == pid:
            return other
        other.kill()
        other.wait()

meant = subprocess.Popen(["sleep", "60"])
start, others = ticks(meant.pid), []
time.sleep(0.05)  # so that the other one's start ticks differ

def swap(frame, event, called):
    if event == "c_call" and called.__name__ in ("pidfd_send_signal", "kill") and not others:
        meant.kill()
        meant.wait()
        others.append(again(meant.pid))

program, handles = sys.argv[1:]
if handles == "no":
    del os.pidfd_open
sys.argv = ["end.py", "KILL", f"[[{meant.pid}, {start}]]"]
names = {"__name__": "__main__"}
sys.setprofile(swap)
try:
    exec(program, names)
finally:
    sys.setprofile(None)
    time.sleep(0.2)
    print("the other one", "lives" if others and others[0].poll() is None else "is dead", flush=True)
    os._exit(0)
"""


@AS_ROOT
@pytest.mark.parametrize(("handles", "fate"), [("yes", "lives"), ("no", "is dead")])
def test_a_pid_that_is_given_to_another_one_between_look_and_kill_hits_nobody(handles: str, fate: str) -> None:
    """Without pidfd (Python 3.8) what is left of the gap is the one call; that it shows here proves the test."""
    own = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    done = subprocess.run(
        [*own, sys.executable, "-I", "-c", textwrap.dedent(REUSED), PROGRAM, handles],
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1:] == [f"the other one {fate}"], done.stdout + done.stderr
