"""What happens to a run: each fault strikes before its `yield`, where the run is held, and is mended after it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

from tests.faults.case import UP, WORK, Case
from tests.project import until

Fault = Callable[[Case], Iterator[None]]


def nothing(case: Case) -> Iterator[None]:
    """What is wrong is in the wish, or in the earlier server."""
    yield


# ---- the client and the way to the host


def client_killed(case: Case) -> Iterator[None]:
    """As by kill -9; what it had asked the host for last begins only after its lock is free."""
    case.client.kill()
    case.client.wait()
    case.lapsed()
    yield


def client_frozen(case: Case) -> Iterator[None]:
    """Its lease lapses, somebody else does what is wished, and it thaws: it may change nothing any more."""
    os.kill(case.client.pid, signal.SIGSTOP)
    case.lapsed()
    if case.step() == "wait":
        case.breakpoints.release()  # it is the server that is held there, and the other one takes it up
    done = case.other.run(*UP)
    assert done.code == 0, f"the second operator: {done.err}"
    before = case.look().settled()
    case.breakpoints.release()
    os.kill(case.client.pid, signal.SIGCONT)
    yield
    assert case.look().settled() == before, "the thawed client changed something"


def cable_cut(case: Case) -> Iterator[None]:
    """Nothing comes through, and nothing says so; the host goes on with what it was asked for, and the lease lapses."""
    case.host.cut()
    try:
        yield
        case.lapsed()
    finally:
        case.host.mend()
    until(lambda: case.project.run("status").code == 0, what="the host to answer again")


# ---- the host


def disk_full(case: Case) -> Iterator[None]:
    """Not a byte is left on the disk of the work folder."""
    case.place.inside("sh", "-c", 'cat /dev/zero >"$1" 2>/dev/null || true', "sh", f"{WORK}/filler")
    try:
        yield
    finally:
        case.place.inside("rm", f"{WORK}/filler")


def port_taken(case: Case) -> Iterator[None]:
    """A process that no run of ours started listens on the server's port."""
    serve = 'cd /; setsid "$2" -m http.server "$1" --bind 127.0.0.1 >/dev/null 2>&1 </dev/null & echo $!'
    pid = case.place.inside("sh", "-c", serve, "sh", str(case.port), sys.executable).strip()
    until(lambda: case.port in case.look().ports, what="the foreign server")
    try:
        yield
    finally:
        case.place.inside("sh", "-c", 'kill -9 "$1" 2>/dev/null || true', "sh", pid)


def server_killed(case: Case) -> Iterator[None]:
    """The new server and its launcher, at once."""
    run = max(case.look().runs)
    pids = [pid for pid, (_, its) in case.look().processes.items() if its == run]
    case.place.inside("kill", "-9", *pids)
    until(lambda: run not in case.look().runs, what="its end")
    yield


# ---- the second operator


def another(*words: str) -> Fault:
    """Somebody else comes, and is told who is there."""

    def comes(case: Case) -> Iterator[None]:
        done = case.other.run(*words)
        told = "locked by" in done.err, f"pid {case.client.pid}" in done.err, "up profile=fake" in done.err
        assert (done.code, *told) == (4, True, True, True), done.err
        yield

    comes.__name__ = f"another's {words[0]}"
    return comes


def faster(*words: str) -> Fault:
    """Somebody else comes in between, and is done."""

    def comes(case: Case) -> Iterator[None]:
        done = case.other.run(*words)
        assert done.code == 0, done.err
        yield

    comes.__name__ = f"another's {words[0]} in between"
    return comes


# ---- hooks


def hook(kind: str, script: str) -> Fault:
    """The hook `hooks/bad` does this, until it is mended."""

    def is_bad(case: Case) -> Iterator[None]:
        file = case.project.folder / "hooks/bad"
        file.write_text(f"#!/bin/sh\n{script}\n")
        yield
        file.write_text("#!/bin/sh\n")

    is_bad.__name__ = f"hook {kind}"
    return is_bad


hook_hangs = hook("hangs", "sleep 300 & sleep 300")
hook_fails = hook("fails", "echo the disk is on fire >&2; exit 3")


def told(fault: Any) -> str:
    """A fault's name in words."""
    return str(fault.__name__).replace("_", " ")
