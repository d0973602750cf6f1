"""What an exchange of a draft leaves on its host, and the lock without which it changes nothing there."""

from __future__ import annotations

import contextlib
import fcntl
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deploy.host.swap_mark import Fence, Lapsed, Mark, link


def test_the_fence_is_the_first_line_and_no_less(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.write_text("token\n{}\n")
    Fence(str(lock), "token").check()
    for token in ("", "toke", "token\n", "{}"):
        with pytest.raises(Lapsed):
            Fence(str(lock), token).check()
    lock.write_text("")
    with pytest.raises(Lapsed):
        Fence(str(lock), "").check()


THEIRS = "theirs\n{}\n"


@pytest.mark.parametrize(
    ("left", "others", "goes_on"),
    [
        ("", False, True),
        ('\n\n{"until":1}\n', False, True),
        (THEIRS, True, False),
        (THEIRS, False, False),  # who has had it in between may have done anything
    ],
)
def test_what_goes_on_takes_a_lock_that_nobody_has(tmp_path: Path, left: str, others: bool, goes_on: bool) -> None:
    lock = tmp_path / "lock"
    lock.write_text(left)
    fence = Fence(str(lock), "token")
    with lock.open() as other:
        if others:
            fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(Lapsed):
            fence.check()
        fence.goes_on = True
        with contextlib.nullcontext() if goes_on else pytest.raises(Lapsed):
            fence.check()
        if goes_on:
            with pytest.raises(BlockingIOError):
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            token, who, *hold = lock.read_text().splitlines()
            assert (token, hold, "whose client is gone" in who) == ("", left.split(), True)


def test_what_goes_on_waits_for_a_lock_whose_token_has_ended(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.write_text("")
    fence = Fence(str(lock), "token")
    fence.goes_on = True
    with lock.open() as other, ThreadPoolExecutor(1) as pool:
        fcntl.flock(other, fcntl.LOCK_EX)
        checked = pool.submit(fence.check)
        with pytest.raises(TimeoutError):
            checked.result(0.1)
        fcntl.flock(other, fcntl.LOCK_UN)
        assert checked.result(60) is None


def test_a_mark_that_cannot_be_read_is_there_all_the_same(tmp_path: Path) -> None:
    mark = Mark(str(tmp_path))
    assert mark.there() is None
    mark.write(new="r")
    assert (mark.there(), [path.name for path in tmp_path.iterdir()]) == ({"new": "r"}, ["swap.json"])
    (tmp_path / "swap.json").write_text("{")
    assert mark.there() == {}
    mark.remove()
    mark.remove()
    assert mark.there() is None


def test_links_are_made_all_or_none(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.symlink_to("runs/1")
    link([["runs/2", str(old)], ["x", str(new)]])
    assert (old.readlink(), new.readlink()) == (Path("runs/2"), Path("x"))
    new.unlink()
    with pytest.raises(OSError, match="No such file"):
        link([["runs/3", str(old)], ["x", str(new)], ["y", str(tmp_path / "missing/z")]])
    assert (old.readlink(), sorted(path.name for path in tmp_path.iterdir())) == (Path("runs/2"), ["old"])
