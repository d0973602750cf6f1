"""Shared memory of the dead: whose each piece was, what may be removed, and that nothing with a user ever is."""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from deploy import host
from deploy.checks import Case
from deploy.checks import leftovers as check
from deploy.facts import known, launched, processes
from deploy.facts import leftovers as facts
from deploy.facts.leftovers import Item, Leftovers, Segment
from deploy.ownership import leftovers
from deploy.ownership.leftovers import Belongings
from tests.project import PATIENCE
from tests.unit.test_owned import process, table

ME, HOUR = 1000, 3600.0


def item(name: str, *users: int, **more: Any) -> Item:
    base = {"path": f"/dev/shm/{name}", "kind": "file", "device": 1, "inode": 7, "size": 4096, "uid": ME, "age": HOUR}
    return Item(**{**base, "users": users, **more})


def seen(*files: Item, **more: Any) -> Leftovers:
    base = {"segments": (), "unread": (), "pids": frozenset({1, 50}), "uid": ME, "sees_all": True}
    return Leftovers(files, **{**base, **more})


NAMES = ("sgl_shm_mq_40_a1b2c3d4", "sgl_shm_mq_40_a1", "sgl_shm_mq_50_a1", "psm_0a1b2c3d", "tmpabc", "k3.gguf")
OURS = Belongings(frozenset((1, 7, f"/dev/shm/{name}") for name in NAMES), frozenset({3}))

FATES: dict[str, tuple[Leftovers, Belongings, str]] = {
    "pid in the name is gone": (seen(item("sgl_shm_mq_40_a1b2c3d4")), Belongings(), "dead: pid 40 in its name is gone"),
    "pid in the name lives": (seen(item("sgl_shm_mq_50_a1b2c3d4")), Belongings(), "kept: pid 50 in its name lives"),
    "somebody maps it": (seen(item("sgl_shm_mq_40_a1b2c3d4", 50)), OURS, ""),
    "another tokenizer's": (seen(item("multi_tokenizer_args_40")), Belongings(), "dead: pid 40 in its name is gone"),
    "pid in the name lives, though who was ended used it": (
        seen(item("sgl_shm_mq_50_a1")), OURS, "kept: pid 50 in its name lives",
    ),
    "an engine's without a pid": (seen(item("sglang_loads_x_1f.shm")), Belongings(), "kept: nobody has it open, but"),
    "torch's": (seen(item("torch_40_123_0")), Belongings(), "dead: pid 40 in its name is gone"),
    "a hand-over's": (seen(item("torch_40_0a1b2c3d_1")), Belongings(), "dead: pid 40 in its name is gone"),
    "anybody's": (seen(item("psm_0a1b2c3d")), Belongings(), "kept: nobody has it open, but whose it was"),
    "anybody's, used by whom we ended": (seen(item("psm_0a1b2c3d")), OURS, "dead: a process that was ended used it"),
    "another file with its name": (seen(item("psm_0a1b2c3d", inode=8)), OURS, "kept: nobody has it open, but"),
    "no known name": (seen(item("my-dataset")), Belongings(), ""),
    "weights that whom we ended had mapped": (seen(item("k3.gguf")), OURS, ""),
    "a socket of nobody": (seen(item("sglang_loads_x.shm", kind="socket")), Belongings(), ""),
    "a socket of whom we ended": (seen(item("tmpabc", kind="socket")), OURS, "dead: a process that was ended used it"),
    "another user's": (seen(item("sgl_shm_mq_40_a1", uid=5)), OURS, "kept: it is of user id 5"),
    "a process cannot be read": (seen(item("sgl_shm_mq_40_a1"), unread=(ME, ME)), OURS, "kept: 2 processes of its"),
    "another user's cannot be read": (seen(item("sgl_shm_mq_40_a1"), unread=(0,)), Belongings(), "dead: pid 40"),
    "it is new": (seen(item("sgl_shm_mq_40_a1", age=3.0)), Belongings(), "kept: it is younger than a minute"),
    "seen from a container": (seen(item("sgl_shm_mq_40_a1"), sees_all=False), Belongings(), "kept: processes that"),
    "from a container, used by whom we ended": (seen(item("psm_0a1b2c3d"), sees_all=False), OURS, "dead: a process"),
}  # fmt: skip


@pytest.mark.parametrize("case", FATES)
def test_only_what_a_dead_owner_left_is_dead(case: str) -> None:
    found, left, told = FATES[case]
    fates = [f"{'dead' if fate.dead else 'kept'}: {fate.why}" for fate in leftovers.judge(found, left)]
    assert [fate[: len(told)] for fate in fates] == [told] * bool(told)


SEGMENTS = [
    (Segment(3, 8, 40, 0, ME, 9), [3]),
    (Segment(3, 8, 40, 1, ME, 9), []),  # attached
    (Segment(4, 8, 40, 0, ME, 9), []),  # not made by those that were ended
    (Segment(3, 8, 40, 0, 5, 9), []),  # another user's
    (Segment(3, 8, 50, 0, ME, 9), []),  # its maker lives: another one by now
]


@pytest.mark.parametrize(("segment", "expected"), SEGMENTS)
def test_a_segment_goes_when_its_maker_was_ended_and_nobody_has_it(segment: Segment, expected: list[int]) -> None:
    assert [one.number for one in leftovers.abandoned(seen(segments=(segment,)), OURS)] == expected


def test_what_processes_use_is_known_while_they_live() -> None:
    made = [Segment(3, 8, 40, 1, ME, 9.0), Segment(4, 8, 50, 1, ME, 0.0), Segment(5, 8, 40, 0, ME, 600.0)]
    found = seen(item("a", 40), item("b", 50, inode=8), segments=tuple(made))
    (ours,) = (one for one in table(process(40, 1, start_ticks=9000)).all if one.pid == 40)
    assert ours.age == 10.0, "segment 5 is of one that had its pid before"
    assert leftovers.of([ours], found) == Belongings(frozenset({(1, 7, "/dev/shm/a")}), frozenset({3}))


def test_what_runs_wrote_down_counts_for_theirs_and_what_is_not_whole_does_not(tmp_path: Path) -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    first = Path("/proc/1/stat").read_text().rpartition(")")[2].split()[19]
    whole = {"boot": boot, "first": first, "files": [[1, 7, "/dev/shm/psm_0a1b2c3d"]], "segments": [3]}
    others = [{"boot": "before"}, {"first": "0.5"}]  # another boot's; another start's of this container
    texts = [json.dumps({**whole, "files": [[2, 2, "/dev/shm/y"]], **other}) for other in others]
    texts.insert(0, json.dumps(whole))
    for number, text in enumerate([*texts, "", "[]", '{"boot": 1}', json.dumps({**whole, "files": [["a", 1, 2]]})]):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "pid").write_text(f"40 40 {boot}\n")
        (folder / "shared.json").write_text(text)
    left = leftovers.remembered(launched.read(cast("Any", Here()), str(tmp_path)))
    assert left == Belongings(frozenset({(1, 7, "/dev/shm/psm_0a1b2c3d")}), frozenset({3}))
    assert left | OURS == OURS


RUN = "/w/m/kimi/runs/r1"
BIG = 20 << 20
CASES: dict[str, tuple[Leftovers, list[dict[str, Any]], list[tuple[str, str]]]] = {
    "nothing": (seen(), [], [("PASS", "left 0 MiB of shared memory")]),
    "of the dead": (
        seen(item("torch_40_1_1", size=BIG)), [], [("WARN", "dead processes left 1 piece, 20 MiB, of shared")],
    ),
    "some crumbs": (seen(item("sglang_loads_x.shm", size=3 << 20)), [], [("PASS", "left 3 MiB of shared memory")]),
    "whose, nobody knows": (
        seen(item("psm_0a1b2c3d", size=BIG)), [], [("WARN", "1 piece, 20 MiB, of shared memory: no user can")],
    ),
    "another user's": (seen(item("psm_0a1b2c3d", size=BIG, uid=5)), [], [("PASS", "left 0")]),
    "new": (seen(item("psm_0a1b2c3d", size=BIG, age=1.0)), [], [("PASS", "left 0")]),
    "a run with its launcher": (
        seen(), [process(10, 1, RUN, cmdline=["sh", "launch.sh"]), process(11, 10, RUN)], [("PASS", "no orphans")],
    ),
    "a run without": (seen(), [process(11, 1, RUN)], [("WARN", "run r1 has lost its launcher, and 1 process of it")]),
    "another user's run without": (
        seen(), [process(11, 1, RUN, uid=5, user="bo")], [("WARN", "profile=kimi, as their user, bo,")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_was_left_is_told_before_it_is_in_the_way(case: str) -> None:
    found, living, told = CASES[case]
    judged = known(leftovers=found, processes=table(*living))
    findings = list(check.check(Case(cast("Any", None), judged, None, cast("Any", None))))
    assert [one.verdict for one in findings] == [verdict for verdict, _ in told]
    words = [f"{one.what} {one.remedy}" for one in findings]
    assert [what in said for said, (_, what) in zip(words, told, strict=True)] == [True] * len(told), findings


# ---- on this very machine


class Here:
    """This machine, as the sweeper sees a host."""

    def python(self, source: str, *args: str, **_: Any) -> Any:
        done = subprocess.run(
            [sys.executable, "-I", "-c", source, *args], capture_output=True, check=True, timeout=PATIENCE
        )
        return json.loads(done.stdout)

    change_python = python

    def say(self, text: str) -> None:
        raise AssertionError(text)


class OneOf(Here):
    """This machine without what else lies on it, which is not this test's to remove."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def python(self, source: str, *args: str, **_: Any) -> Any:
        told = super().python(source, *args)
        return {**told, "files": [one for one in told["files"] if one["path"] == str(self.path)], "segments": []}


@pytest.fixture
def name() -> Iterator[str]:
    """For a file of /dev/shm that no test run but this one knows."""
    made = secrets.token_hex(8)
    yield made
    for path in Path("/dev/shm").glob(f"*{made}*"):
        path.unlink()


def mapping(path: Path) -> mmap.mmap:
    """Of a page of it, which stays when its descriptor is closed."""
    with path.open("w+b") as file:
        file.truncate(4096)
        return mmap.mmap(file.fileno(), 4096)


def users(path: Path) -> tuple[int, ...]:
    return next(one.users for one in facts.read(cast("Any", Here())).files if one.path == str(path))


def test_who_maps_a_file_or_has_it_open_is_its_user(name: str) -> None:
    path = Path("/dev/shm", f"psm_{name}")
    mapped = mapping(path)
    assert users(path) == (os.getpid(),)
    mapped.close()
    assert users(path) == ()
    with path.open():
        assert users(path) == (os.getpid(),)


def test_who_listens_on_a_socket_is_its_user_and_a_dead_one_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "ipc socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        found = facts.read(cast("Any", Here()))
        assert [one.users for one in found.files if one.path == str(path)] == [(os.getpid(),)]
        left = leftovers.of([me for me in processes.read(cast("Any", Here())).all if me.pid == os.getpid()], found)
        assert str(path) in {key[2] for key in left.keys}
        left = Belongings(frozenset(one.key for one in found.files if one.path == str(path)))
        assert leftovers.sweep(cast("Any", OneOf(path)), left) == "", "it is in use"
    assert path.exists()
    assert leftovers.sweep(cast("Any", OneOf(path)), left) == "1 piece of shared memory removed, 0 MiB"
    assert not path.exists()


@pytest.mark.parametrize(("change", "kept"), [("", ""), ("open", "in use by pid"), ("exchange", "another one by now")])
def test_what_is_swept_is_looked_at_once_more(name: str, change: str, kept: str) -> None:
    path = Path("/dev/shm", f"sgl_shm_mq_1_{name}")
    mapping(path).close()
    about = path.stat()
    wanted = [{"path": str(path), "device": about.st_dev, "inode": about.st_ino, "size": 4096}]
    with contextlib.ExitStack() as stack:
        if change == "open":
            stack.enter_context(path.open())
        if change == "exchange":
            path.rename(f"{path}.before")
            path.touch()
        told = Here().python(host.source("sweep"), json.dumps(wanted), "[]")
    assert [kept in why for why in told["kept"].values()] == [True] * bool(kept)
    assert (path.exists(), told["bytes"]) == ((True, 0) if kept else (False, 4096))


def test_a_segment_of_system_v_is_seen_and_removed_when_nobody_has_it() -> None:
    libc = ctypes.CDLL(None)
    libc.shmat.restype = ctypes.c_void_p
    libc.shmat.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
    libc.shmdt.argtypes = [ctypes.c_void_p]
    number = libc.shmget(0, 8192, 0o1600)
    try:
        at = libc.shmat(number, None, 0)
        (segment,) = (one for one in facts.read(cast("Any", Here())).segments if one.number == number)
        assert (segment.size, segment.creator, segment.attached) == (8192, os.getpid(), 1)
        assert Here().python(host.source("sweep"), "[]", json.dumps([number]))["removed"] == []
        libc.shmdt(at)
        assert Here().python(host.source("sweep"), "[]", json.dumps([number])) == {
            "removed": [number], "bytes": 8192, "kept": {},
        }  # fmt: skip
        assert [one for one in facts.read(cast("Any", Here())).segments if one.number == number] == []
    finally:
        libc.shmctl(number, 0, None)


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a pid namespace")
def test_a_pid_counts_as_taken_that_a_living_process_has_in_a_container() -> None:
    """Who runs there writes that one into the names of its pieces."""
    free = next(pid for pid in range(3, 1 << 22) if not Path(f"/proc/{pid}").exists())
    words = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-c", NUMBERED, str(free)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == f"{free}\n"
        assert free in facts.read(cast("Any", Here())).pids
        process.communicate("")


NUMBERED = """
import os, sys
while os.fork():  # until one has the number that is asked for
    pid = os.wait()[0]
    if pid >= int(sys.argv[1]):
        sys.exit()
if os.getpid() >= int(sys.argv[1]):
    print(os.getpid(), flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_whose_maps_may_not_be_read_is_told() -> None:
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3"]
    done = subprocess.run(
        [*nobody, "-I", "-c", host.source("leftovers")], capture_output=True, check=True, timeout=PATIENCE
    )
    found = facts.parse(json.loads(done.stdout))
    assert (found.uid, 0 in found.unread, os.getpid() in found.pids) == (65534, True, True)
