"""The program that follows a server's log and its life on a host."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deploy import host
from tests.project import PATIENCE, until

PROGRAM = host.source("watch")


def ticks(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[19]


class Watch:
    """The program on a folder, and what it has told so far."""

    def __init__(self, folder: Path, pid: int = 0, start: str = "0", offset: int = 0) -> None:
        argv = [sys.executable, "-I", "-c", PROGRAM, str(folder), str(pid), start, str(offset)]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.log: list[str] = []
        self.alive = 0
        self.gone: list[int | None] = []
        self.lost: list[dict[str, Any]] = []
        self.told: dict[str, Any] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            told: dict[str, Any] = json.loads(line)
            self.log += told.get("log", [])
            self.alive += "alive" in told
            self.gone += [told["exit"]] if "gone" in told else []
            self.lost += [told["lost"]] if "lost" in told else []
            self.told.update(told)

    def ended(self) -> str:
        """Wait for its end; what it said on stderr."""
        self.process.wait(timeout=PATIENCE)
        self._reader.join(timeout=PATIENCE)
        assert self.process.stdout
        assert self.process.stderr
        with self.process.stdout, self.process.stderr as stderr:
            return stderr.read()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.ended()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "server.log").write_bytes(b"")
    return tmp_path


@contextmanager
def living(folder: Path, offset: int = 0) -> Iterator[tuple[Watch, subprocess.Popen[bytes]]]:
    """A watch on a launcher that lives."""
    with subprocess.Popen(["sleep", "100"]) as launcher:
        watch = Watch(folder, launcher.pid, ticks(launcher.pid), offset)
        try:
            yield watch, launcher
        finally:
            launcher.kill()
            watch.close()


def add(folder: Path, text: str | bytes) -> None:
    with (folder / "server.log").open("ab") as log:
        log.write(text if isinstance(text, bytes) else text.encode())


def of_the_dead(folder: Path, offset: int = 0) -> Watch:
    """Watch a launcher that is gone: the whole of its log, and its end."""
    watch = Watch(folder, offset=offset)
    assert watch.ended() == ""
    return watch


TEXTS: list[tuple[str, bytes, list[str]]] = [
    ("lines", b"one\ntwo\n", ["one", "two"]),
    ("no last newline", b"one\ntwo", ["one", "two"]),
    ("empty lines", b"\n\none\n   \n\ntwo\n\n", ["one", "two"]),
    ("windows", b"one\r\ntwo\r\n", ["one", "two"]),
    ("a progress bar", b"\r 0%|   |\r50%|#  |\r100%|###|\nnext\n", [" 0%|   |", "50%|#  |", "100%|###|", "next"]),
    ("colours", b"\x1b[32mINFO\x1b[0m up\n", ["\x1b[32mINFO\x1b[0m up"]),
    ("not unicode", b"caf\xe9 \xc3\xa9\n", ["caf\ufffd \u00e9"]),
    ("other line breaks", "a\u2028b\x0bc\n".encode(), ["a\u2028b\x0bc"]),
    ("a very long line", b"x" * 3000 + b"y" * 3000 + b"\nnext\n", ["x" * 3000 + "y" * 1000, "next"]),
    ("holes", b"\0" * 5000 + b"after\n\0\0\n", ["after"]),
    ("many empty ones", b"\n" * 3_000_000 + b"last words", ["last words"]),
    ("nothing", b"", []),
]


@pytest.mark.parametrize(("text", "lines"), [case[1:] for case in TEXTS], ids=[case[0] for case in TEXTS])
def test_a_log_is_told_line_by_line(text, lines, folder):
    add(folder, text)
    watch = of_the_dead(folder)
    assert watch.log == lines
    assert watch.gone == [None]


def test_a_folder_without_a_log_has_nothing_to_tell(tmp_path):
    watch = of_the_dead(tmp_path)
    assert (watch.log, watch.gone) == ([], [None])


EXITS = [("0\n", 0), ("143\n", 143), ("", None), ("x", None)]


@pytest.mark.parametrize(("content", "code"), EXITS)
def test_the_exit_code_is_what_the_launcher_wrote(content, code, folder):
    (folder / "exit").write_text(content)
    assert of_the_dead(folder).gone == [code]


def test_what_is_added_is_told_as_it_comes(folder):
    with living(folder) as (watch, _):
        for number in range(3):
            add(folder, f"line {number}\n")
            until(lambda number=number: len(watch.log) == number + 1, what="the line")  # type: ignore[misc]
        assert watch.log == ["line 0", "line 1", "line 2"]


def test_a_line_that_comes_in_pieces_is_told_once_and_whole(folder):
    with living(folder) as (watch, _):
        add(folder, "first\nsecond ha")
        until(lambda: watch.log == ["first"])
        add(folder, "lf\nthird\n")
        until(lambda: len(watch.log) == 3)
        assert watch.log == ["first", "second half", "third"]


def test_a_letter_that_comes_in_pieces_is_whole(folder):
    with living(folder) as (watch, _):
        add(folder, b"first\n\xc3")
        until(lambda: watch.log == ["first"])
        add(folder, b"\xa9\n")
        until(lambda: len(watch.log) == 2)
        assert watch.log[1] == "\u00e9"


def test_the_last_state_of_a_progress_bar_is_told_although_its_line_has_not_ended(folder):
    with living(folder) as (watch, _):
        add(folder, "\r50%|###   |")
        until(lambda: watch.log == ["50%|###   |"])
        add(folder, "\r100%|######|\n")
        until(lambda: watch.log == ["50%|###   |", "100%|######|"])


def test_a_silent_launcher_is_told_to_live_once_a_second(folder):
    with living(folder) as (watch, _):
        until(lambda: watch.alive >= 2)
        assert watch.gone == []


def test_how_long_it_showed_no_sign_of_life_is_told(folder):
    with living(folder) as (watch, _):
        until(lambda: watch.told.get("silent", 0) >= 1)
        add(folder, "a line\n")
        until(lambda: watch.told["sign"] == "the log" and watch.told["silent"] < 2)
        add(folder, "a line\n")
        until(lambda: watch.log == ["a line", "a line"])
        until(lambda: watch.told["silent"] >= 3)


TITLED = "import ctypes, time; ctypes.CDLL(None).prctl(15, b'sglang::scheduler_TP3'); time.sleep(100)"


def test_a_lost_engine_process_is_told_at_once_and_ends_it_though_its_launcher_lives(folder):
    env = {**os.environ, "DEPLOY_SERVER": str(folder)}
    with (
        subprocess.Popen([sys.executable, "-c", TITLED], env=env) as scheduler,
        living(folder) as (watch, launcher),
    ):
        until(lambda: watch.alive >= 2)
        scheduler.kill()
        os.waitid(os.P_PID, scheduler.pid, os.WEXITED | os.WNOWAIT)
        (lost,) = until(lambda: watch.lost, what="the loss")
        add(folder, "last words")
        assert watch.ended() == ""
        assert (lost["pid"], lost["status"], launcher.poll()) == (scheduler.pid, signal.SIGKILL, None)
        assert (watch.told["gone"], watch.told["exit"], watch.log) == (False, None, ["last words"])


ORPHANING = f"""
import os, signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {TITLED!r}])
while b"sglang" not in open(f"/proc/{{child.pid}}/comm", "rb").read():
    time.sleep(0.01)
child.kill()
os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
print(child.pid, flush=True)
time.sleep(100)
"""


def test_an_engine_process_that_had_died_before_it_was_watched_is_lost(folder):
    argv = [sys.executable, "-c", ORPHANING]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True) as launcher:
        assert launcher.stdout
        dead = int(launcher.stdout.readline())
        watch = Watch(folder, launcher.pid, ticks(launcher.pid))
        (lost,) = until(lambda: watch.lost, what="the loss")
        assert watch.ended() == ""
        launcher.kill()
    assert (lost["pid"], lost["status"], watch.told["gone"]) == (dead, signal.SIGKILL, False)


@contextmanager
def flood(folder: Path) -> Iterator[None]:
    """Somebody who writes into the log faster than it can be read."""
    with (folder / "server.log").open("ab") as log, subprocess.Popen(["yes", "x" * 200], stdout=log) as writer:
        try:
            yield
        finally:
            writer.kill()


def test_a_flood_of_lines_hides_neither_a_loss_nor_a_silence(folder):
    env = {**os.environ, "DEPLOY_SERVER": str(folder)}
    with (
        subprocess.Popen([sys.executable, "-c", TITLED], env=env) as scheduler,
        living(folder) as (watch, _),
        flood(folder),
    ):
        until(lambda: watch.told.get("silent", 0) >= 1, what="that the same line again is no sign of life")
        scheduler.kill()
        until(lambda: watch.lost and watch.gone, what="its loss, and the end")
        assert watch.ended() == ""


def test_a_flood_of_lines_does_not_hide_the_end(folder):
    with living(folder) as (watch, launcher), flood(folder):
        until(lambda: watch.log)
        launcher.kill()
        launcher.wait(timeout=PATIENCE)
        until(lambda: watch.gone, what="its end")
        assert watch.ended() == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="takes a capability away")
def test_a_kernel_whose_log_must_not_be_read_is_not_said_to_have_killed_nothing(folder):
    if Path("/proc/sys/kernel/dmesg_restrict").read_text().strip() != "1":
        pytest.skip("here everybody may read it")
    argv = ["setpriv", "--bounding-set", "-syslog", "--inh-caps", "-syslog", sys.executable, "-I", "-c", PROGRAM]
    done = subprocess.run([*argv, str(folder), "0", "0", "0"], capture_output=True, timeout=PATIENCE, check=True)
    told = json.loads(done.stdout.splitlines()[-1])
    assert (told["oom"], told["unread"]) in [([], "Operation not permitted"), ([], "")]
    assert bool(told["unread"]) or counted()


def counted() -> bool:
    """Whether the kernel counts what it kills, which everybody may read."""
    return "\noom_kill " in Path("/proc/vmstat").read_text()


def test_the_last_words_come_before_the_end(folder):
    with living(folder) as (watch, launcher):
        add(folder, "up\n")
        until(lambda: watch.log == ["up"])
        add(folder, "Traceback\nboom")
        (folder / "exit").write_text("1\n")
        launcher.kill()
        launcher.wait(timeout=PATIENCE)
        assert watch.ended() == ""
        assert (watch.log, watch.gone) == (["up", "Traceback", "boom"], [1])


def test_a_launcher_that_is_a_zombie_is_gone(folder):
    with living(folder) as (watch, launcher):
        launcher.kill()
        os.waitid(os.P_PID, launcher.pid, os.WEXITED | os.WNOWAIT)  # it stays a zombie until somebody asks
        assert watch.ended() == ""
        assert watch.gone == [None]


def test_another_process_with_the_same_pid_is_not_the_launcher(folder):
    with subprocess.Popen(["sleep", "60"]) as other:
        watch = Watch(folder, other.pid, str(int(ticks(other.pid)) - 1))
        assert watch.ended() == ""
        other.kill()
    assert watch.gone == [None]


def test_one_who_takes_a_run_up_later_begins_where_he_says(folder):
    add(folder, "old\nnew\n")
    assert of_the_dead(folder, offset=4).log == ["new"]


def test_a_log_that_is_truncated_is_read_on_from_its_beginning(folder):
    with living(folder) as (watch, _):
        add(folder, "a long first line\nand a piece")
        until(lambda: watch.log == ["a long first line"])
        os.truncate(folder / "server.log", 0)
        until(lambda: len(watch.log) == 2)
        add(folder, "new\n")
        until(lambda: len(watch.log) == 3)
        assert watch.log == ["a long first line", "and a piece", "new"]


def test_a_log_that_is_moved_away_is_waited_for(folder):
    with living(folder) as (watch, _):
        add(folder, "one\n")
        until(lambda: watch.log == ["one"])
        (folder / "server.log").rename(folder / "server.log.1")
        until(lambda: watch.alive >= 1)
        add(folder, "2\n")
        until(lambda: watch.log == ["one", "2"])


BIG: list[tuple[str, Callable[[Any], Any]]] = [
    ("lines", lambda log: log.writelines(b"%08d %s\n" % (n, b"x" * 90) for n in range(500_000))),
    ("one line", lambda log: [log.write(b"x" * (1 << 20)) for _ in range(50)]),
]


@pytest.mark.parametrize("write", [case[1] for case in BIG], ids=[case[0] for case in BIG])
def test_fifty_megabytes_are_read_in_bounded_memory(write, folder):
    with (folder / "server.log").open("wb") as log:
        write(log)
        log.write(b"\nlast\n")
    measure = "print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0], file=sys.stderr)"
    argv = [sys.executable, "-I", "-c", f"{PROGRAM}\n{measure}", str(folder), "0", "0", "0"]
    done = subprocess.run(argv, capture_output=True, timeout=120, check=True)
    assert int(done.stderr) < 64 * 1024  # KiB
    *_, last, end = done.stdout.splitlines()
    assert json.loads(last)["log"][-1] == "last"
    assert json.loads(end) == {"gone": True, "exit": None, "oom": [], "unread": ""}


def test_it_ends_quietly_when_nobody_listens(folder):
    with subprocess.Popen(["sleep", "60"]) as launcher:
        argv = [sys.executable, "-I", "-c", PROGRAM, str(folder), str(launcher.pid), ticks(launcher.pid), "0"]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout
            assert process.stderr
            process.stdout.close()
            assert process.wait(timeout=PATIENCE) == 0
            assert process.stderr.read() == b""
        launcher.kill()
