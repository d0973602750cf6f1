"""A repair in place is taken back whole or not at all, and neither is begun under another program's feet."""

from __future__ import annotations

import json
import mmap
import os
import subprocess
from pathlib import Path

import pytest

from deploy.host import header, repair
from tests.repairs import contents, done, draft, other_map, sound, task, written


def _other_weights(folder: Path) -> None:
    written(folder / "b.safetensors", {"b": ("U8", [70_001])})


def _other_data(folder: Path) -> None:
    found = header.read(folder / "b.safetensors")
    with (folder / "b.safetensors").open("r+b") as file:
        file.seek(found.data_start)
        file.write(bytes(found.size - found.data_start))


def _other_settings(folder: Path) -> None:
    (folder / "config.json").write_text('{"mine": 1}')


def _removed(folder: Path) -> None:
    (folder / "b.safetensors").unlink()


SINCE = [
    (_other_weights, "b.safetensors changed since the repair"),
    (_other_data, "b.safetensors changed since the repair"),
    (other_map, "a.safetensors changed since the repair"),
    (_other_settings, "config.json changed since the repair"),
    (_removed, "b.safetensors changed since the repair"),
]


@pytest.mark.parametrize(("spoil", "said"), SINCE, ids=[case[0].__name__.strip("_") for case in SINCE])
@pytest.mark.parametrize(("orig", "remedy"), [(True, "a.safetensors.orig"), (False, "copy the draft anew")])
def test_what_somebody_changed_after_the_repair_is_not_taken_back_and_nothing_else_is(
    tmp_path, spoil, said, orig, remedy
):
    folder = tmp_path / "draft"
    draft(folder)
    done(repair.act(task(folder, orig=orig)))
    spoil(folder)
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    answer = repair.act({"path": str(folder), "mode": "undo"})
    assert (said in answer["error"], remedy in answer["remedy"]) == (True, True), answer
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == after


@pytest.mark.parametrize("how", ["open", "mapped"])
def test_a_file_that_another_program_has_open_is_neither_changed_nor_taken_back(tmp_path, how):
    folder = tmp_path / "draft"
    before = draft(folder)
    with (folder / "b.safetensors").open("rb") as used, mmap.mmap(used.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        if how == "mapped":
            used.close()
        answer = repair.act(task(folder, orig=True))
        assert ("is open in another program" in answer["error"], "--out" in answer["remedy"]) == (True, True)
        assert (contents(folder), mapped[:]) == (before, before["b.safetensors"])
    done(repair.act(task(folder, orig=True)))
    with (folder / "b.safetensors").open("rb"):
        assert "is open in another program" in repair.act({"path": str(folder), "mode": "undo"})["error"]
    sound(folder, before)
    done(repair.act({"path": str(folder), "mode": "undo"}))
    assert contents(folder) == before


def test_a_file_that_takes_only_more_bytes_is_found_before_anything_is_changed(tmp_path):
    folder = tmp_path / "draft"
    before = draft(folder)
    if subprocess.run(["chattr", "+a", folder / "b.safetensors"], capture_output=True, check=False).returncode:
        pytest.skip("this file system or user sets no attributes")
    try:
        assert "may not be written to" in repair.act(task(folder, orig=True))["error"]
    finally:
        subprocess.run(["chattr", "-a", folder / "b.safetensors"], check=True)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


JOURNALS = [
    ("", "is no journal"),
    ("[]", "is no journal"),
    ('{"weights": [], "texts": [{}]}', "is no journal"),
    ('{"weights": [], "texts": [{"name": "config.json"}]}', "is of another version of deploy"),
    ('{"weights": [{"name": "a.safetensors", "orig": ""}], "texts": []}', "is of another version of deploy"),
    ('{"weights": [], "texts": [{"name": "config.json", "old": 1, "new": ""}]}', "is of another version of deploy"),
]


@pytest.mark.parametrize(("text", "said"), JOURNALS)
@pytest.mark.parametrize("mode", ["recover", "undo"])
def test_what_is_no_journal_is_told_and_not_obeyed(tmp_path, mode, text, said):
    folder = tmp_path / "draft"
    before = draft(folder)
    (folder / ".deploy-repair.begun").write_text(text)
    answer = repair.act({"path": str(folder), "mode": mode})
    assert (said in answer["error"], bool(answer["remedy"])) == (True, True)
    assert (folder / ".deploy-repair.begun").read_text() == text
    assert contents(folder) == before


def test_a_journal_of_another_user_or_of_other_folders_is_not_obeyed(tmp_path):
    folder = tmp_path / "draft"
    before = draft(folder)
    (tmp_path / "victim").write_bytes(b"x" * 9)
    entry = {
        "name": "../victim",
        "size": 9,
        "start": 0,
        "grown": 0,
        "head": "eA==",
        "patches": [],
        "marks": [],
        "new": "",
        "orig": "",
    }
    (folder / ".deploy-repair.begun").write_text(json.dumps({"weights": [entry], "texts": []}))
    assert "names files of other folders" in repair.act({"path": str(folder), "mode": "recover"})["error"]
    if os.geteuid() == 0:
        entry["name"] = "a.safetensors"
        (folder / ".deploy-repair.begun").write_text(json.dumps({"weights": [entry], "texts": []}))
        os.chown(folder / ".deploy-repair.begun", 12345, 12345)
        assert "is of user 12345" in repair.act({"path": str(folder), "mode": "recover"})["error"]
    assert (contents(folder), (tmp_path / "victim").read_bytes()) == (before, b"x" * 9)
