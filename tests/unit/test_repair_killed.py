"""A repair that dies at any of its writes, and on any file system: the next one finds all of the old or of the new."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy import host
from deploy.host import repair
from tests import filesystems
from tests.project import PATIENCE
from tests.repairs import contents, done, draft, sound, task, written

SHM = Path("/dev/shm")  # tmpfs, which cannot insert blocks

# ---- killed anywhere -----------------------------------------------------------------------------------------------

# The very text that hosts get, with every call that changes something counted; at the wanted one it dies.
KILLER = """
import fcntl, json, os, signal, sys, types
text, at, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
count = 0
def dying(call, torn):
    def called(*args, **more):
        global count
        count += 1
        if count == at:
            if how == "torn" and torn:
                call(args[0], bytes(args[1])[: len(args[1]) // 2], *args[2:])
            if how == "after":
                call(*args, **more)
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args, **more)
    return called
for name in ("pwrite", "write"):
    setattr(os, name, dying(getattr(os, name), True))
for name in ("replace", "rename", "unlink", "fsync", "copy_file_range", "mkdir", "fchmod", "rmdir"):
    setattr(os, name, dying(getattr(os, name), False))
fcntl.ioctl = dying(fcntl.ioctl, False)
space = sys.modules["repair"] = types.ModuleType("repair")
exec(compile(text, "repair", "exec"), space.__dict__)
space.ranged = dying(space.ranged, False)
answer = space.act(json.load(sys.stdin))
print(json.dumps({"calls": count, "answer": answer}))
"""


def killed(wish: dict[str, Any], at: int, how: str) -> dict[str, Any] | None:
    """Carry a task out until its call number `at`; the answer if it came so far."""
    argv = [sys.executable, "-I", "-S", "-c", KILLER, host.source("repair"), str(at), how]
    ended = subprocess.run(argv, input=json.dumps(wish), capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert ended.returncode in (0, -9), ended.stderr
    found: dict[str, Any] | None = json.loads(ended.stdout) if ended.returncode == 0 else None
    return found


def _calls(folder: Path, tmp_path: Path) -> int:
    """How many calls change something in the task that repairs a copy of the folder in place."""
    copy = tmp_path / "counted"
    shutil.copytree(folder, copy)
    found = killed(task(copy), 0, "before")
    assert found
    return int(found["calls"])


@pytest.fixture
def on_tmpfs() -> Iterator[Path]:
    if subprocess.run(["stat", "-fc", "%T", SHM], capture_output=True, text=True, check=False).stdout != "tmpfs\n":
        pytest.skip("/dev/shm is no tmpfs")
    folder = SHM / f"deploy-test-{os.getpid()}"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


def each_call(base: Path, wish: Any, padding: int, hows: str, check: Any) -> int:
    """Die at every call in turn, each time with a new draft, and check what is left; how many calls there were."""
    at = 0
    while True:
        at += 1
        for how in hows.split():
            shutil.rmtree(base, ignore_errors=True)
            before = draft(base / "draft", padding=padding)
            survived = killed(wish(base / "draft"), at, how)
            if survived is not None:
                done(survived["answer"])
                sound(base / "draft" if (base / "draft" / ".deploy-repair.done").exists() else base / "out", before)
                return at - 1
            check(base, before)


def old_or_new(base: Path, before: dict[str, bytes]) -> None:
    """Whoever opens it next finds all of the old or all of the new, and may go on."""
    folder = base / "draft"
    done(repair.act({"path": str(folder), "mode": "recover"}))
    now = contents(folder)
    kept = {name: now.pop(name) for name in list(now) if ".orig" in name}
    assert all(before[name.partition(".orig")[0]] == content for name, content in kept.items())
    if now == before:
        assert kept == {}
        done(repair.act(task(folder, orig=True)))
    sound(folder, before)
    done(repair.act({"path": str(folder), "mode": "undo"}))
    assert contents(folder) == before
    assert sorted(path.name for path in folder.iterdir() if path.name[0] == ".") in (
        [],
        ["..deploy-repair.begun.deploy-tmp"],
    )


@pytest.mark.parametrize(("padding", "least"), [(0, 30), (70_000, 28)], ids=["room is made", "it fits"])
def test_killed_at_any_write_in_place_it_is_old_or_new(tmp_path, padding, least):
    def wish(folder: Path) -> dict[str, Any]:
        return task(folder, orig=True)

    assert each_call(tmp_path / "x", wish, padding, "before torn", old_or_new) >= least


def test_killed_at_any_write_where_room_cannot_be_made(on_tmpfs):
    assert each_call(on_tmpfs / "x", lambda folder: task(folder, orig=True), 0, "before torn", old_or_new) >= 30


def test_killed_at_any_write_of_a_new_folder_it_is_there_or_not(tmp_path):
    def wish(folder: Path) -> dict[str, Any]:
        return task(folder, "new", out=str(folder.parent / "out"))

    def check(base: Path, before: dict[str, bytes]) -> None:
        assert contents(base / "draft") == before
        if (base / "out").exists():
            sound(base / "out", before)
        done(repair.act(wish(base / "draft")))
        sound(base / "out", before)
        assert sorted(path.name for path in base.iterdir()) == ["draft", "out"]

    assert each_call(tmp_path / "x", wish, 0, "before torn", check) >= 15


@pytest.mark.parametrize("padding", [0, 70_000])
def test_killed_while_it_is_taken_back_it_is_taken_back_by_the_next(tmp_path, padding):
    at = 0
    while True:
        at += 1
        folder = tmp_path / str(at)
        before = draft(folder, padding=padding)
        done(repair.act(task(folder, orig=True)))
        survived = killed({"path": str(folder), "mode": "undo"}, at, "torn")
        done(repair.act({"path": str(folder), "mode": "recover"}))
        if survived is not None:
            break
        if contents(folder) != before:  # it had not begun
            sound(folder, before)
            done(repair.act({"path": str(folder), "mode": "undo"}))
        assert contents(folder) == before
        shutil.rmtree(folder)
    assert at > 10


def test_a_file_that_was_replaced_after_a_repair_broke_off_is_left_as_it_is(tmp_path):
    folder = tmp_path / "draft"
    draft(folder)
    killed(task(folder), _calls(folder, tmp_path) // 2, "before")
    assert (folder / ".deploy-repair.begun").exists()
    new = written(
        folder / "a.safetensors", {"layers.0.w": ("U8", [70_000]), "d2t": ("I64", [4]), "fc": ("F32", [3, 5])}
    )
    answer = done(repair.act({"path": str(folder), "mode": "recover"}))
    assert "but not of a.safetensors, which somebody changed since" in answer["did"]
    assert (folder / "a.safetensors").read_bytes() == new
    assert (folder / ".deploy-repair.aside").exists()


# ---- real file systems ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "inserts", "shares"), [("ext4", True, False), ("xfs", True, True)])
def test_a_file_system_makes_room_and_shares_what_it_can(tmp_path, kind, inserts, shares):
    if why := filesystems.missing(kind):
        pytest.skip(why)
    with filesystems.mounted(kind, tmp_path) as mount:

        def act(wish: dict[str, Any]) -> dict[str, Any]:
            # paths as they are inside; the draft is looked at from outside
            text = json.dumps(wish).replace(str(mount.seen), str(mount.at))
            ended = mount.run(sys.executable, "-I", "-c", host.source("repair"), input=text)
            assert ended.returncode == 0, ended.stderr
            return done(json.loads(ended.stdout))

        folder, out = mount.seen / "draft", mount.seen / "out"
        before = draft(folder, size=20 << 20)
        assert act(task(folder, "new", out=str(out)))["files"]["a.safetensors"] == ("shared" if shares else "copied")
        sound(out, before)
        how = act(task(folder, orig=True))["files"]["a.safetensors"]
        assert ("room made in front" in how) == inserts
        sound(folder, before)
        assert (folder / "a.safetensors.orig").read_bytes() == before["a.safetensors"]
        act({"path": str(folder), "mode": "undo"})
        assert contents(folder) == before


def test_where_no_room_can_be_made_the_file_is_written_anew_and_that_is_said(on_tmpfs):
    before = draft(on_tmpfs / "draft")
    how = done(repair.act(task(on_tmpfs / "draft", orig=True)))["files"]["a.safetensors"]
    assert how == "written anew, its data copied: the file system cannot make room in front"
    sound(on_tmpfs / "draft", before)
    done(repair.act({"path": str(on_tmpfs / "draft"), "mode": "undo"}))
    assert contents(on_tmpfs / "draft") == before


def test_it_runs_on_the_oldest_python_that_hosts_may_have(tmp_path):
    old = next((path for path in Path.home().glob(".pyenv/versions/3.8.*/bin/python3.8")), shutil.which("python3.8"))
    if old is None:
        pytest.skip("no Python 3.8 here")
    before = draft(tmp_path / "draft")
    argv = [str(old), "-I", "-S", "-c", host.source("repair")]
    text = json.dumps(task(tmp_path / "draft", orig=True))
    ended = subprocess.run(argv, input=text, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    sound(tmp_path / "draft", before)
