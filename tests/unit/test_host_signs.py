"""What counts as a sign of life of a run on a host, what as the loss of a process, and what the kernel has killed."""

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

from deploy.host import family, kernel, ring
from deploy.host.signs import Signs
from tests.project import until

PRELUDE = "import ctypes, os, sys, time\nname = lambda text: ctypes.CDLL(None).prctl(15, text)\n"


class Process:
    """A process of the run in `folder`: it does what it is told, a piece of Python at a time."""

    def __init__(self, folder: Path) -> None:
        loop = "for line in sys.stdin:\n    exec(line)\n    print(flush=True)\n"
        self.process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + loop], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
            env={**os.environ, "DEPLOY_SERVER": str(folder), "HOME": str(folder)},
        )  # fmt: skip
        self.does("pass")

    @property
    def pid(self) -> int:
        return self.process.pid

    def does(self, code: str) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(f"{code}\n")
        assert self.process.stdout.readline() == "\n"

    def kill(self) -> None:
        """Without asking how it ended: it stays a zombie."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)


@contextmanager
def running(folder: Path) -> Iterator[tuple[Process, Signs]]:
    """A process of a run and who looks at it, once already; its signs are asked for after what it does next."""
    server = Process(folder)
    signs = Signs(str(folder), str(server.pid))
    signs.look()
    signs.what = ""
    try:
        yield server, signs
    finally:
        server.process.kill()
        server.process.communicate()


DOES: dict[str, tuple[str, str]] = {
    "it reads": ("open('/dev/zero', 'rb').read(32 << 20)", "read 32 MiB"),
    "it reads a little, as pollers do": ("open('/dev/zero', 'rb').read(1 << 20)", ""),
    "its memory grows": ("held = bytearray(b'x') * (32 << 20)", "MiB of memory"),
    "it spins": ("[None for _ in range(3_000_000)]", ""),
    "it compiles": ("child = os.fork()\nif not child: name(b'cicc'); time.sleep(60)", "compilers at work"),
    "it waits": ("pass", ""),
}


@pytest.mark.parametrize("case", DOES)
def test_what_is_a_sign_of_life(tmp_path: Path, case: str) -> None:
    code, what = DOES[case]
    with running(tmp_path) as (server, signs):
        server.does(f"exec({code!r})")
        if "fork" in code:
            until(lambda: "(cicc)" in stats_of_children(server.pid), what="the compiler")
        signs.look()
        assert what in signs.what
        assert bool(what) == bool(signs.what)
        assert bool(signs.compilers) == (case == "it compiles")
        if "fork" in code:
            server.does("os.kill(child, 9)")
            until(lambda: "(cicc)Z" in stats_of_children(server.pid), what="its end")
            signs.look()
            assert signs.compilers == [], "one that has ended does nothing, though nobody asked how it ended"
            server.does("os.waitpid(child, 0)")


def stats_of_children(pid: int) -> str:
    return "".join(f"({one.name}){one.state}" for one in family.everyone().values() if one.ppid == pid)


def test_who_is_stopped_is_named(tmp_path: Path) -> None:
    with running(tmp_path) as (server, signs):
        os.kill(server.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, server.pid, os.WSTOPPED)
        signs.look()
        (stopped,) = signs.stopped
        assert stopped.endswith(f"(pid {server.pid})")
        os.kill(server.pid, signal.SIGCONT)


def test_little_by_little_is_a_sign_at_last(tmp_path: Path) -> None:
    with running(tmp_path) as (server, signs):
        before = []
        while not signs.what:
            server.does("open('/dev/zero', 'rb').read(1 << 20)")
            signs.look()
            before.append(signs.what)
        assert 14 <= len(before) <= 17


CACHES = [".triton/cache", ".cache/flashinfer/0.7.2/cached_ops", ".cache/sglang/deep_gemm", ".nv/ComputeCache"]


@pytest.mark.parametrize("cache", CACHES)
def test_a_file_in_a_compilers_cache_is_a_sign(tmp_path: Path, cache: str) -> None:
    (tmp_path / cache).mkdir(parents=True)
    (tmp_path / cache / "old").write_text("old")
    with running(tmp_path) as (_, signs):
        signs.look_further()
        assert signs.what == ""
        (tmp_path / cache / "kernel.cubin").write_text("new")
        signs.look_further()
        assert "caches" in signs.what


def test_gpu_memory_that_its_processes_take_is_a_sign_and_that_of_others_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(__file__).parents[1]}/fake-bin:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_GPU_STATE", str(tmp_path / "gpus"))
    (tmp_path / "gpus" / "holders").mkdir(parents=True)
    (tmp_path / "gpus" / "gpus.json").write_text(json.dumps({"preset": "rtx-pro-6000 x2"}))
    with running(tmp_path) as (server, signs):
        holds(tmp_path, server.pid, 1000)
        signs.look_further()  # what it had before is no growth
        holds(tmp_path, os.getpid(), 9000)
        signs.look_further()
        assert signs.what == ""
        holds(tmp_path, server.pid, 1900)
        signs.look_further()
        assert signs.what == "took 900 MiB of GPU memory"


def holds(folder: Path, pid: int, mib: int) -> None:
    holder = {"pid": pid, "start_ticks": ticks(pid), "name": "server", "mib": {"1": mib}}
    (folder / "gpus" / "holders" / f"{pid}.json").write_text(json.dumps(holder))


def ticks(pid: int) -> int:
    one = family.member(str(pid))
    assert one
    return int(one.ticks)


SAID: list[tuple[str, list[str], bool]] = [
    ("a new line", ["loading"], True),
    ("the same line", ["waiting", "waiting"], False),
    ("the same line later", ["[2026-11-30 10:00:00 TP0] waiting", "[2026-11-30 10:00:10 TP0] waiting"], False),
    ("two that alternate", ["a", "b", "a", "b"], False),
    ("a bar that moves", ["50%|##  | 2/4 [00:01<00:01]", "75%|### | 3/4 [00:01<00:00]"], True),
    ("a bar that is only drawn again", ["50%|##  | 2/4 [00:01<00:01]", "50%|##  | 2/4 [00:09<00:01]"], False),
    ("our own question", ['INFO: 127.0.0.1:4001 - "GET /ready" 503', 'INFO: 127.0.0.1:4077 - "GET /ready" 503'], False),
    ("colours", ["\x1b[32mwaiting\x1b[0m", "waiting"], False),
]


@pytest.mark.parametrize(("lines", "sign"), [case[1:] for case in SAID], ids=[case[0] for case in SAID])
def test_what_the_log_says_again_is_no_sign(tmp_path: Path, lines: list[str], sign: bool) -> None:
    signs = Signs(str(tmp_path), "0")
    for line in lines:
        signs.what = ""
        signs.heard([line])
    assert bool(signs.what) == sign


def test_an_engines_process_is_missed_once_it_is_gone(tmp_path: Path) -> None:
    with running(tmp_path) as (server, signs):
        server.does("name(b'sglang::scheduler_TP1')")
        signs.look()
        assert signs.lost() is None
        server.kill()
        lost = signs.lost()
        assert lost
        assert (lost["pid"], lost["status"]) == (server.pid, signal.SIGKILL)


def test_a_fork_with_its_title_or_one_that_becomes_something_else_is_none(tmp_path: Path) -> None:
    with running(tmp_path) as (server, signs):
        server.does("name(b'sglang::scheduler_TP1')")
        server.does("child = os.fork() or time.sleep(60)")
        signs.look()
        server.does("os.kill(child, 9); os.waitpid(child, 0)")
        assert signs.lost() is None
        server.does("name(b'ninja')")
        assert signs.lost() is None
        server.kill()
        assert signs.lost() is None


def test_a_process_that_leaves_the_session_is_still_one_of_the_run(tmp_path: Path) -> None:
    with running(tmp_path) as (server, signs):
        server.does("child = os.fork() or (os.setsid(), name(b'sglang::detokenizer'), time.sleep(60))")
        until(lambda: "sglang::detoken" in stats_of_children(server.pid), what="its title")
        signs.look()
        server.does("os.kill(child, 9)")
        lost = until(signs.lost, what="the loss")
        assert lost["title"]
        server.does("os.waitpid(child, 0)")


KILLS: list[tuple[str, str, bool]] = [
    ("ours", "<3>[  500.10] Out of memory: Killed process 41 (python3) total-vm:1kB, anon-rss:1kB", True),
    ("an old kernel", "<3>[  500.10] Out of memory: Kill process 41 (python3) score 9 or sacrifice child", True),
    (
        "in a cgroup",
        "<3>[  500.10] Memory cgroup out of memory: Killed process 41 (sglang::schedul) total-vm",
        True,
    ),
    ("before the launch", "<3>[    9.10] Out of memory: Killed process 41 (python3) total-vm:1kB", False),
    ("somebody else's", "<3>[  500.10] Out of memory: Killed process 77 (python3) total-vm:1kB", False),
    ("something else", "<6>[  500.10] process 41 (python3) used greatest stack depth", False),
]


@pytest.mark.parametrize(("line", "ours"), [case[1:] for case in KILLS], ids=[case[0] for case in KILLS])
def test_the_kernels_kills_of_a_run_are_found(line: str, ours: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    since = str(100 * family.TICK)
    assert kernel.kills([line], since, {41}, {"python3"}) == ([line] if ours or kernel.contained() else [])


def test_the_kernels_log_is_read_or_said_to_be_unreadable() -> None:
    try:
        assert all(line.startswith("<") for line in ring.ring() if line)
    except OSError as error:
        assert error.strerror
    assert kernel.oom_kills() is None or kernel.oom_kills() >= 0  # type: ignore[operator]
