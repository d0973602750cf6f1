"""The host program of a repair: the bytes that it leaves, whatever the file is like and whenever it dies."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deploy.host import header, repair
from deploy.host.header import BITS
from tests.repairs import contents, done, draft, other_map, parsed, sound, task, written

SAME_FOLDER = [HealthCheck.function_scoped_fixture]


# ---- any file ----------------------------------------------------------------------------------------------------

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12).filter(lambda name: name != "__metadata__")
SHAPES = st.tuples(
    st.sampled_from(sorted(BITS)), st.lists(st.integers(0, 40).map(lambda n: 4 * n), min_size=1, max_size=2)
)


@pytest.mark.parametrize("mode", ["new", "in-place"])
@settings(max_examples=60, deadline=None, suppress_health_check=SAME_FOLDER)
@given(
    sizes=st.dictionaries(NAMES, SHAPES, min_size=1, max_size=6),
    padding=st.integers(0, 9) | st.sampled_from([4096, 70_000]),
    metadata=st.dictionaries(st.text(), st.text(), max_size=2),
    data=st.data(),
)
def test_whatever_is_in_it_the_same_bytes_stand_under_other_names(tmp_path, mode, sizes, padding, metadata, data):
    folder, out = tmp_path / "draft", tmp_path / "out"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(out, ignore_errors=True)
    folder.mkdir()
    content = written(folder / "m.safetensors", sizes, padding, metadata)
    before = header.read(folder / "m.safetensors")
    old = data.draw(st.lists(st.sampled_from(sorted(sizes)), unique=True, min_size=1))
    new = data.draw(
        st.lists(NAMES.filter(lambda name: name not in sizes), unique=True, min_size=len(old), max_size=len(old))
    )
    rename = dict(zip(old, new, strict=True))
    given_ = {"path": str(folder), "mode": mode, "out": str(out), "rename": {"m.safetensors": rename}, "orig": True}
    done(repair.act(given_))
    path = (out if mode == "new" else folder) / "m.safetensors"
    after = header.read(path)
    assert after.metadata == before.metadata
    assert {name: header.load(path, after, rename.get(name, name)) for name in before.tensors} == parsed(content)
    assert (after.data_start % 8 == 0 or before.data_start % 8 != 0) or mode == "in-place"
    kept = folder / ("m.safetensors" if mode == "new" else "m.safetensors.orig")
    assert kept.read_bytes() == content
    if mode == "in-place":
        done(repair.act({"path": str(folder), "mode": "undo"}))
        assert contents(folder) == {"m.safetensors": content}


def test_all_of_a_sharded_draft_is_repaired_and_taken_back(tmp_path):
    folder = tmp_path / "draft"
    before = draft(folder)
    done(repair.act(task(folder, orig=True)))
    sound(folder, before)
    assert {name: contents(folder)[f"{name}.orig"] for name in before if name.endswith("s")} == {
        name: content for name, content in before.items() if name.endswith("s")
    }
    answer = done(repair.act({"path": str(folder), "mode": "undo"}))
    assert "was taken back" in answer["did"]
    assert contents(folder) == before
    assert "nothing to take back" in repair.act({"path": str(folder), "mode": "undo"})["remedy"]


def test_a_new_folder_holds_the_repair_and_the_old_one_what_it_held(tmp_path):
    folder, out = tmp_path / "draft", tmp_path / "x" / "out"
    before = draft(folder)
    (folder / "notes.txt").write_text("mine")
    (folder / "a.safetensors.orig").write_bytes(b"an older one")
    (folder / "sub").mkdir()
    (folder / "sub" / "more").symlink_to(folder / "notes.txt")
    done(repair.act(task(folder, "new", out=str(out))))
    sound(out, before)
    assert (out / "sub" / "more").read_text() == (out / "notes.txt").read_text() == "mine"
    assert not (out / "a.safetensors.orig").exists()
    assert {name: (folder / name).read_bytes() for name in before} == before
    stat = (out / "a.safetensors").stat()
    assert done(repair.act(task(folder, "new", out=str(out))))["did"] == "is there already"
    assert (out / "a.safetensors").stat() == stat


# ---- what is refused -----------------------------------------------------------------------------------------------


def _hard_link(folder: Path) -> None:
    os.link(folder / "a.safetensors", folder.parent / "another")


def _link(folder: Path) -> None:
    (folder / "b.safetensors").rename(folder.parent / "blob")
    (folder / "b.safetensors").symlink_to(folder.parent / "blob")


def _read_only(folder: Path) -> None:
    (folder / "config.json").chmod(0o444)


def _other_names(folder: Path) -> None:
    written(folder / "b.safetensors", {"b": ("U8", [70_000])})


def _other_config(folder: Path) -> None:
    (folder / "config.json").write_text('{"x": 1, "y": {"z": 1}}')


def _broken_config(folder: Path) -> None:
    (folder / "config.json").write_text("{")


def _truncated(folder: Path) -> None:
    os.truncate(folder / "b.safetensors", 60_000)


BAD = [
    (_hard_link, "has 2 names (hard links)", "in-place"),
    (_link, "is a link to", "in-place"),
    (_read_only, "may not be written to", "in-place"),
    (other_map, "d2t is not what it was", "in-place new"),
    (_other_names, "has no tensor 'model.b' to rename", "in-place new"),
    (_other_config, "x is not what it was", "in-place new"),
    (_broken_config, "is not JSON", "in-place new"),
    (_truncated, "truncated", "in-place new"),
]
CASES = [(spoil, said, mode) for spoil, said, modes in BAD for mode in modes.split()]


@pytest.mark.parametrize(("spoil", "said", "mode"), CASES, ids=[f"{c[0].__name__.strip('_')}-{c[2]}" for c in CASES])
def test_it_is_refused_in_words_and_nothing_is_changed(tmp_path, spoil, said, mode):
    folder, out = tmp_path / "draft", tmp_path / "out"
    draft(folder)
    wish = task(folder, mode, out=str(out), orig=True)
    spoil(folder)
    before = contents(folder)
    answer = repair.act(wish)
    assert said in answer["error"]
    assert answer["remedy"]
    assert contents(folder) == before
    assert [path.name for path in folder.iterdir() if path.name[0] == "."] == []
    assert [path.name for path in tmp_path.iterdir() if "out" in path.name] == []


OUT = [
    ("something else is there", lambda out: out.mkdir(parents=True), "exists, and is something else"),
    ("a file is there", lambda out: out.write_text(""), "exists, and is something else"),
]


@pytest.mark.parametrize(("make", "said"), [case[1:] for case in OUT], ids=[case[0] for case in OUT])
def test_a_folder_that_is_there_is_not_touched(tmp_path, make, said):
    draft(tmp_path / "draft")
    make(tmp_path / "out")
    assert said in repair.act(task(tmp_path / "draft", "new", out=str(tmp_path / "out")))["error"]


def test_a_result_that_somebody_edited_is_not_taken_for_the_same(tmp_path):
    draft(tmp_path / "draft")
    wish = task(tmp_path / "draft", "new", out=str(tmp_path / "out"))
    done(repair.act(wish))
    (tmp_path / "out" / "config.json").write_text("{}")
    assert "is something else" in repair.act(wish)["error"]


@pytest.mark.parametrize("inside", ["", "fixed"])
def test_the_new_folder_lies_outside_of_the_old_one(tmp_path, inside):
    before = draft(tmp_path / "draft")
    answer = repair.act(task(tmp_path / "draft", "new", out=str(tmp_path / "draft" / inside)))
    assert "lies in the folder that is repaired" in answer["error"]
    assert contents(tmp_path / "draft") == before


@pytest.mark.parametrize(("mode", "lock"), [("in-place", "draft/.deploy-repair.lock"), ("new", ".out.deploy-lock")])
def test_two_at_once_are_one_after_the_other(tmp_path, mode, lock):
    before = draft(tmp_path / "draft")
    wish = task(tmp_path / "draft", mode, out=str(tmp_path / "out"))
    with (tmp_path / lock).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert "another repair is at work" in repair.act(wish)["error"]
    assert contents(tmp_path / "draft") == before
    done(repair.act(wish))
    assert not (tmp_path / lock).exists()


def test_an_older_original_is_kept(tmp_path):
    folder = tmp_path / "draft"
    before = draft(folder)
    (folder / "a.safetensors.orig").write_bytes(b"older")
    done(repair.act(task(folder, orig=True)))
    assert (folder / "a.safetensors.orig").read_bytes() == b"older"
    assert (folder / "a.safetensors.orig.1").read_bytes() == before["a.safetensors"]
    assert (folder / "a.safetensors.orig.1").stat().st_nlink == 1


def test_modes_are_kept(tmp_path):
    draft(tmp_path / "draft")
    for name in ("a.safetensors", "config.json"):
        (tmp_path / "draft" / name).chmod(0o640)
    done(repair.act(task(tmp_path / "draft", "new", out=str(tmp_path / "out"))))
    done(repair.act(task(tmp_path / "draft", orig=True)))
    for path in (
        "draft/a.safetensors",
        "draft/config.json",
        "draft/a.safetensors.orig",
        "out/a.safetensors",
        "out/config.json",
    ):
        assert (tmp_path / path).stat().st_mode & 0o777 == 0o640, path


@pytest.mark.parametrize("calls", [("copy_file_range", "sendfile", "write"), ("pwrite",)], ids=["copying", "writing"])
def test_a_full_disk_leaves_everything_as_it_was(tmp_path, monkeypatch, calls):
    folder = tmp_path / "draft"
    before = draft(folder)
    wish = task(folder, orig=True)

    def full(*_args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for name in calls:
        monkeypatch.setattr(os, name, full)
    for mode in ("in-place", "new"):
        answer = repair.act({**wish, "mode": mode, "out": str(tmp_path / "new" / "out")})
        assert ("No space left" in answer["error"], "make room" in answer["remedy"]) == (True, True)
    assert contents(folder) == before
    assert [path.name for path in tmp_path.iterdir()] == ["draft"]
    assert [path.name for path in folder.iterdir() if path.name[0] == "."] == []
