"""A log that is capped beside its server, and those who read it meanwhile: real files, real programs."""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy import engines, host
from deploy.host import logcap
from deploy.host.log import Log
from tests.project import PATIENCE, until

CAP = 1 << 16
LINE = "%011d " + "x" * 87 + "\n"  # 100 bytes
# Writes numbered lines, so many at a time, for so many seconds, and then stays.
WRITER = """
import os, sys, time
count, pause, seconds = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
number, end = 0, time.monotonic() + seconds
while time.monotonic() < end:
    os.write(1, b"".join(b"%011d %s\\n" % (number + i, b"x" * 87) for i in range(count)))
    number += count
    time.sleep(pause)
open("written", "w").write(str(number))
time.sleep(100)
"""
# As launch.sh starts it: the companion is a child of the launcher, here of a server that takes the launcher's place.
LAUNCHER = """
(ulimit -f "$LIMIT"; exec setsid "$0" -I -S logcap.py $$ </dev/null >>logcap.log 2>&1) & echo $! >companion
exec "$@"
"""


class Run:
    """A run's folder with a server that writes, and its companion."""

    def __init__(self, folder: Path, *writer: float, cap: str | None = "64K", limit: str = "unlimited") -> None:
        self.folder = folder
        self.cap(cap)
        (folder / "logcap.py").write_text(host.source("logcap"))
        argv = ["sh", "-c", LAUNCHER, sys.executable, sys.executable, "-c", WRITER, *map(str, writer)]
        with (folder / "server.log").open("ab") as log:
            self.server = subprocess.Popen(
                argv, cwd=folder, stdout=log, stdin=subprocess.DEVNULL, env={**os.environ, "LIMIT": limit}
            )
        self.companion = int(until(lambda: self.text("companion")))

    def cap(self, cap: str | None) -> None:
        (self.folder / "m").write_text(json.dumps({"node": {"profile": {"log": {"cap": cap}}}}))
        (self.folder / "m").rename(self.folder / "manifest.json")

    def text(self, name: str) -> str:
        file = self.folder / name
        return file.read_text() if file.exists() else ""

    def size(self, name: str = "server.log") -> int:
        file = self.folder / name
        return file.stat().st_size if file.exists() else 0

    @property
    def cut(self) -> int:
        return int((self.text("server.log.cut") or "0").split()[0])

    def written(self) -> int:
        """How many lines, once all are, and the companion has come to rest."""
        count = int(until(lambda: self.text("written")))
        until(lambda: self.size() <= CAP and "..." not in self.text("server.log.cut"), what="the log is below its cap")
        return count

    def kept(self) -> list[int]:
        """The numbers of the lines that are kept, the first one perhaps cut in two."""
        lines = (self.text("server.log.1") + self.text("server.log")).split("\n")
        return [int(line[:11]) for line in lines if len(line) == 99]


@contextmanager
def running(folder: Path, *writer: float, cap: str | None = "64K", limit: str = "unlimited") -> Iterator[Run]:
    run = Run(folder, *writer, cap=cap, limit=limit)
    try:
        yield run
    finally:
        run.server.kill()
        run.server.wait(timeout=PATIENCE)
        until(lambda: ended(run.companion), what="the companion ends with its server")


def ended(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except OSError:
        return True
    return state in "ZX"


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system that takes no blocks out of a file: there it is copied and truncated."""
    with subprocess.Popen(["mktemp", "-d", "-p", "/dev/shm"], stdout=subprocess.PIPE, text=True) as made:
        folder = Path(made.communicate()[0].strip())
    yield folder
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()


# ---- the companion -----------------------------------------------------------------------------------------------


def test_nothing_is_lost_where_blocks_can_be_taken_out(tmp_path):
    """At full speed: what is kept is a whole number of bytes, in order, to the last one."""
    with running(tmp_path, 10, 0, 1.5) as run:
        count = run.written()
        if not can_collapse(tmp_path):
            pytest.skip("this file system cannot")
        assert run.cut + run.size() == count * 100
        assert run.kept() == list(range(run.kept()[0], count))
        assert run.size("server.log.1") > 0


def can_collapse(folder: Path) -> bool:
    (folder / "probe").write_bytes(b"x" * 10000)
    return subprocess.run(["fallocate", "-c", "-l", "4096", folder / "probe"], check=False).returncode == 0


def test_elsewhere_the_tail_is_kept_to_its_last_line(memory):
    with running(memory, 10, 0.002, 1.5) as run:
        count = run.written()
        kept = run.kept()
        assert kept[-1] == count - 1
        assert kept == sorted(set(kept))
        assert run.size("server.log.1") > 0


def test_it_ends_with_the_server_and_the_server_lives_without_it(tmp_path):
    with running(tmp_path, 1, 0.1, 100) as run:
        os.kill(run.companion, 9)
        until(lambda: ended(run.companion))
        before = run.size()
        until(lambda: run.size() > before, what="the server writes on")


def test_a_companion_whose_launcher_is_gone_already_does_nothing(tmp_path):
    argv = [sys.executable, "-I", "-S", "-c", host.source("logcap"), "1"]
    assert subprocess.run(argv, cwd=tmp_path, timeout=PATIENCE, check=True, capture_output=True).stderr == b""


def test_the_cap_is_the_one_that_the_manifest_says_now(tmp_path):
    with running(tmp_path, 10, 0.001, 1, cap=None) as run:
        until(lambda: run.size() > 3 * CAP)
        assert run.cut == 0
        run.cap("64K")
        run.written()
        assert run.cut > 0


def test_where_the_copy_cannot_be_written_the_log_stays_and_it_is_told_once(tmp_path):
    """No file of the companion's may be larger than its limit: what a full disk is to it."""
    (tmp_path / "server.log").write_bytes(b"old\n" * CAP)
    with running(tmp_path, 1, 0.05, 0.5, limit="128") as run:
        until(lambda: run.text("logcap.log"))
        assert (run.size() >= 4 * CAP, run.cut, run.size("server.log.1")) == (True, 0, 0)
        assert not (tmp_path / "server.log.1.tmp").exists()
        assert re.fullmatch(r"\S+ \S+ server.log stays above its cap: File too large\n", run.text("logcap.log"))


# ---- who reads it ------------------------------------------------------------------------------------------------


class Follower:
    """`logs.py` on a run, and what it prints."""

    def __init__(self, folder: Path, lines: int, *words: str) -> None:
        argv = [sys.executable, "-I", "-c", host.source("logs"), str(lines), str(folder), *(words or (str(folder),))]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE)
        self.out = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        while data := self.process.stdout.read1(65536):  # type: ignore[attr-defined]
            self.out += data

    def close(self) -> None:
        self.process.kill()
        self.process.wait(timeout=PATIENCE)
        self._reader.join(timeout=PATIENCE)
        assert self.process.stdout
        self.process.stdout.close()


def test_a_follower_loses_and_doubles_nothing(tmp_path):
    """100 kB a second, so that even a machine that stalls for half a second has not cut off what was not read."""
    with running(tmp_path, 10, 0.01, 4) as run:
        follower = Follower(tmp_path, 10)
        try:
            count = run.written()
            assert run.cut > 2 * CAP
            until(lambda: follower.out.endswith(b"%011d %s\n" % (count - 1, b"x" * 87)))
            lines = follower.out.decode().splitlines()
            first = int(lines[0][:11])
            assert lines == [LINE.strip() % number for number in range(first, count)]
        finally:
            follower.close()


def test_what_is_cut_off_faster_than_it_is_read_is_told_to_the_byte(tmp_path):
    """A writer at full speed, and a reader that looks ten times a second."""
    with running(tmp_path, 50, 0, 1.5) as run:
        follower = Follower(tmp_path, 10)
        try:
            count = run.written()
            until(lambda: follower.out.endswith(b"%011d %s\n" % (count - 1, b"x" * 87)))
            # from the first whole line on: where it began to read is no line's beginning, and may be cut off as well
            first = re.search(rb"^(\d{11}) x{87}$", follower.out, re.MULTILINE)
            assert first
            told, gap = follower.out[first.start() :], rb"\n\[deploy: (\d+) bytes of the log were cut off [^\n]*\]\n"
            read = len(re.sub(gap, b"", told)) + sum(map(int, re.findall(gap, told)))
            assert int(first[1]) * 100 + read == count * 100
        finally:
            follower.close()


def test_the_watch_sees_every_line(tmp_path):
    with running(tmp_path, 10, 0.01, 3) as run:
        start = Path(f"/proc/{run.server.pid}/stat").read_text().rpartition(") ")[2].split()[19]
        argv = [sys.executable, "-I", "-c", host.source("watch"), str(tmp_path), str(run.server.pid), start, "0"]
        seen: list[str] = []
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as watch:
            assert watch.stdout
            for told in map(json.loads, watch.stdout):
                seen += told.get("log", [])
                written = run.text("written")
                if written and seen and seen[-1].startswith(f"{int(written) - 1:011}"):
                    break
            watch.kill()
        assert run.cut > CAP
        assert seen == [LINE.strip() % number for number in range(int(written))]


def test_the_watch_says_what_it_could_not_read(tmp_path):
    (tmp_path / "server.log").write_bytes(b"x\n" * 600)
    with subprocess.Popen(["sleep", "60"]) as server:
        start = Path(f"/proc/{server.pid}/stat").read_text().rpartition(") ")[2].split()[19]
        argv = [sys.executable, "-I", "-c", host.source("watch"), str(tmp_path), str(server.pid), start, "0"]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as watch:
            assert watch.stdout
            assert json.loads(watch.stdout.readline()) == {"from": 0}
            assert json.loads(watch.stdout.readline()) == {"log": ["x"] * 600}
            os.kill(watch.pid, signal.SIGSTOP)
            (tmp_path / "server.log").unlink()
            capped(tmp_path, b"y\n" * 300, b"z\n")
            (tmp_path / "server.log.cut").write_text("2000\n")
            os.kill(watch.pid, signal.SIGCONT)
            seen: list[str] = []
            while len(seen) < 302:
                seen += json.loads(watch.stdout.readline()).get("log", [])
            watch.kill()
        server.kill()
    assert seen[0] == "[deploy: 200 bytes of the log were cut off before they could be read]"
    assert seen[1:302] == ["y"] * 300 + ["z"]


def capped(folder: Path, older: bytes, newer: bytes) -> None:
    """A folder after a cut, in which bytes before `older` are gone too."""
    (folder / "server.log.1").write_bytes(older)
    (folder / "server.log").write_bytes(newer)
    (folder / "server.log.cut").write_text(f"{1000 + len(older)}\n")


LAST: list[tuple[str, bytes, bytes, int, bytes]] = [
    ("of one file", b"", b"a\nb\nc\n", 2, b"b\nc\n"),
    ("all of it", b"", b"a\nb\n", 2, b"a\nb\n"),
    ("more than there are", b"", b"a\nb\n", 9, b"a\nb\n"),
    ("without a last newline", b"", b"a\nb\nc", 2, b"b\nc"),
    ("none", b"a\n", b"b\n", 0, b""),
    ("over the cut", b"a\nb\nc\n", b"d\ne\n", 4, b"b\nc\nd\ne\n"),
    ("a line that was cut in two", b"a\nbbb", b"BBB\nc\n", 2, b"bbbBBB\nc\n"),
    ("up to the cut", b"a\nb\n", b"c\n", 1, b"c\n"),
    ("nothing since the cut", b"a\nb\n", b"", 1, b"b\n"),
    ("the older ones alone", b"a\nb\n", b"", 5, b"a\nb\n"),
    ("empty lines", b"\n\n", b"\n\n", 3, b"\n\n\n"),
    ("long ones", b"x" * 200_000 + b"\n", b"y" * 200_000 + b"\nz\n", 2, b"y" * 200_000 + b"\nz\n"),
    ("nothing at all", b"", b"", 3, b""),
]


@pytest.mark.parametrize(("older", "newer", "count", "shown"), [c[1:] for c in LAST], ids=[c[0] for c in LAST])
def test_the_last_lines(older, newer, count, shown, tmp_path):
    capped(tmp_path, older, newer) if older else (tmp_path / "server.log").write_bytes(newer)
    argv = [sys.executable, "-I", "-c", host.source("logs"), str(count), str(tmp_path)]
    assert subprocess.run(argv, capture_output=True, check=True, timeout=PATIENCE).stdout == shown


def test_no_secret_of_the_run_is_printed_however_long_the_line(tmp_path):
    secret = "hf_ABCDEFGHIJKLMNOPQRSTUVWXYZ012345"
    (tmp_path / "secrets.json").write_text(json.dumps({"CAN": secret}))
    (tmp_path / "server.log").write_bytes(b"LONG \xff " + f"x{secret}".encode() * 10000 + b"\nthe end\n")
    argv = [sys.executable, "-I", "-c", host.source("logs"), "10", str(tmp_path)]
    shown = subprocess.run(argv, capture_output=True, check=True, timeout=PATIENCE).stdout
    assert shown == b"LONG \xff " + b"x***" * 10000 + b"\nthe end\n"


SIEVED: list[tuple[str, bytes, bytes, bytes]] = [
    ("whole lines", b"", b"no\nLoad one\nno\nKV two\n", b"Load one\nKV two\n"),
    ("states of a bar", b"", b"Load 1/3\rLoad 2/3\rno\rLoad 3/3", b"Load 1/3\nLoad 2/3\nLoad 3/3\n"),
    ("over the cut", b"no\nLo", b"ad one\nno\n", b"Load one\n"),
    ("no such line", b"", b"no\n" * 100_000, b""),
    ("a line longer than a piece", b"", b"x" * 200_000 + b"Load one\nLoad two\n", b"Load one\nLoad two\n"),
    ("one of them far behind", b"", b"no\n" * 100_000 + b"KV two\n" + b"no\n" * 100_000, b"KV two\n"),
    ("nothing at all", b"", b"", b""),
]


@pytest.mark.parametrize(("older", "newer", "shown"), [case[1:] for case in SIEVED], ids=[case[0] for case in SIEVED])
def test_only_lines_with_one_of_the_words(older, newer, shown, tmp_path):
    capped(tmp_path, older, newer) if older else (tmp_path / "server.log").write_bytes(newer)
    argv = [sys.executable, "-I", "-c", host.source("logs"), "-1", str(tmp_path), "", "Load ", "KV "]
    first, _, rest = subprocess.run(argv, capture_output=True, check=True, timeout=PATIENCE).stdout.partition(b"\n")
    assert first.decode() == f"\x1d{1000 if older else 0} {tmp_path}"
    lines, _, still = rest.partition(b"\x1e")
    assert re.sub(rb"^x+", b"", lines) == shown
    assert 0 <= float(still) < 60


def test_a_log_of_100_mb_is_looked_through_in_little_memory(tmp_path):
    with (tmp_path / "server.log").open("wb") as log:
        for part in range(100):
            log.write(b"%d Load weight begin\n" % part)
            log.write(b"[2026-11-29 20:31:50] Decode batch, #running-req: 1\n" * 20_000)
    assert (tmp_path / "server.log").stat().st_size > 100e6
    argv = [sys.executable, "-I", "-c", host.source("logs"), "-1", str(tmp_path), "", *engines.load("sglang").WORDS]
    limited = ["sh", "-c", 'ulimit -v 200000 && exec "$@"', "sh", *argv]  # kB
    told = subprocess.run(limited, capture_output=True, check=True, timeout=PATIENCE).stdout.decode().split("\n")
    assert told[1:-2] == [f"{part} Load weight begin" for part in range(100)]


def test_who_follows_the_phases_is_told_of_the_next_run(tmp_path):
    first, second = tmp_path / "runs" / "1", tmp_path / "runs" / "2"
    for folder in (first, second):
        folder.mkdir(parents=True)
        (folder / "server.log").write_text(f"no\nLoad of {folder.name}\n")
    (tmp_path / "current").symlink_to(first)
    follower = Follower(first, -1, str(tmp_path / "current"), "Load ")
    try:
        until(lambda: b"\x1e" in follower.out)
        (tmp_path / "next").symlink_to(second)
        (tmp_path / "next").rename(tmp_path / "current")
        until(lambda: b"Load of 2\n" in follower.out)
    finally:
        follower.close()
    told = re.sub(r"\x1e.*\n", "", follower.out.decode())
    assert told == f"\x1d0 {first}\nLoad of 1\n\x1d0 {second}\nLoad of 2\n"


READS: list[tuple[str, int, tuple[int, bytes]]] = [
    ("in the older ones", 1001, (1001, b"bc")),
    ("before all that is kept", 5, (1000, b"abc")),
    ("at the cut", 1003, (1003, b"def")),
    ("in the newer ones", 1005, (1005, b"f")),
    ("at the end", 1006, (1006, b"")),
    ("beyond it, since somebody else truncated it", 2000, (1003, b"def")),
]


@pytest.mark.parametrize(("at", "found"), [case[1:] for case in READS], ids=[case[0] for case in READS])
def test_bytes_have_their_place_since_the_launch(at, found, tmp_path):
    capped(tmp_path, b"abc", b"def")
    assert Log(str(tmp_path)).read(at, 100) == found


def test_a_cut_that_is_going_on_is_waited_for(tmp_path):
    capped(tmp_path, b"abc", b"def")
    (tmp_path / "server.log.cut").write_text("1000 ...\n")
    found: list[tuple[int, bytes]] = []
    reader = threading.Thread(target=lambda: found.append(Log(str(tmp_path)).read(1000, 100)))
    reader.start()
    time.sleep(0.05)
    (tmp_path / "m").write_text("1003\n")
    (tmp_path / "m").rename(tmp_path / "server.log.cut")
    reader.join(timeout=PATIENCE)
    assert found == [(1000, b"abc")]


def test_what_was_read_while_it_was_cut_is_read_again(tmp_path):
    """The bytes that were asked for move from one file to the other in the middle of it."""

    class Cut(Log):
        times = 0

        def _read(self, at: int, most: int, cut: int) -> tuple[int, bytes]:
            self.times += 1
            if self.times == 1:
                (tmp_path / "server.log.1").write_bytes(b"def")
                (tmp_path / "server.log").write_bytes(b"ghi")
                (tmp_path / "server.log.cut").write_text("1006\n")
            return super()._read(at, most, cut)

    capped(tmp_path, b"abc", b"def")
    assert Cut(str(tmp_path)).read(1003, 100) == (1003, b"def")


def test_a_cut_is_announced_before_and_told_after(tmp_path, monkeypatch):
    (tmp_path / "server.log").write_bytes(b"x" * 10_000)
    monkeypatch.chdir(tmp_path)
    announced: list[str] = []
    rename = os.replace

    def replaced(old: str, new: str) -> None:
        announced.extend([Path("server.log.cut").read_text()] if new == "server.log.1" else [])
        rename(old, new)

    monkeypatch.setattr(os, "replace", replaced)
    log = os.open("server.log", os.O_RDWR)
    logcap.rotate(log, ctypes.CDLL(None, use_errno=True))
    os.close(log)
    assert announced == ["0 ...\n"]
    assert int(Path("server.log.cut").read_text()) + (tmp_path / "server.log").stat().st_size == 10_000


def test_a_cut_that_never_ended_is_waited_for_once(tmp_path, monkeypatch):
    """Whoever cut was killed in the middle of it."""
    capped(tmp_path, b"abc", b"def")
    (tmp_path / "server.log.cut").write_text("1003 ...\n")
    monkeypatch.setattr("deploy.host.log.PATIENCE", 3.0)
    log, began = Log(str(tmp_path)), time.monotonic()
    assert [log.read(at, 100) for at in (1000, 1003)] == [(1000, b"abc"), (1003, b"def")]
    assert 3.0 <= time.monotonic() - began < 6.0


def test_who_reads_without_older_bytes_goes_on_with_the_newer_ones(tmp_path):
    capped(tmp_path, b"abc", b"def")
    (tmp_path / "server.log.1").unlink()
    assert Log(str(tmp_path)).read(1000, 100) == (1003, b"def")


@pytest.mark.parametrize("told", ["", "\n", "garbage\n", "-5\n", "1_000\n", "12three\n", "9" * 5000, "\xff 7\n"])
def test_a_count_of_what_was_cut_that_cannot_be_read_is_none(tmp_path, told, monkeypatch):
    (tmp_path / "server.log").write_bytes(b"one\ntwo\n")
    (tmp_path / "server.log.cut").write_bytes(told.encode("latin-1"))
    assert Log(str(tmp_path)).read(0, 100) == (0, b"one\ntwo\n")
    monkeypatch.chdir(tmp_path)
    assert logcap.cut_so_far() == 0
