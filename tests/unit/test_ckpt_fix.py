"""`deploy ckpt fix`: the command line, on folders of this machine."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from deploy.host import header
from deploy.host.rewrite import rewrite
from tests.project import EXAMPLES, Done, Project

TARGET = str(EXAMPLES / "target")


@pytest.fixture
def project(tmp_path) -> Project:
    return Project(tmp_path / "project")


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    """The trained draft, its layer spelled as Speculators does, and a null key that kills the server."""
    folder = tmp_path / "draft"
    shutil.copytree(EXAMPLES / "draft", folder)
    weights = folder / "model.safetensors"
    names = header.read(weights).tensors
    rewrite(
        EXAMPLES / "draft" / "model.safetensors",
        weights,
        {name: name.replace("midlayer", "layers.0") for name in names},
    )
    configure(folder, target_hidden_size=None)
    return folder


def configure(folder: Path, **more: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **more}))


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name[0] != "."}


def test_it_shows_what_it_changes_and_what_check_says_then(project, draft):
    before = files(draft)
    assert project.run("ckpt", "check", str(draft), "--target", TARGET, "--engine", "sglang==0.5.8").code == 5
    done = project.run("ckpt", "fix", str(draft), "--target", TARGET)
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert "model.safetensors:  layers.0.hidden_norm.weight               ->  midlayer.hidden_norm.weight" in lines
    assert any(line.startswith("config.json:  target_hidden_size: null") and line.endswith("->  -") for line in lines)
    assert lines[-2:] == [f"11 changes, written: {draft}-fixed", "now: will serve"]
    fixed = Path(f"{draft}-fixed")
    assert header.read(fixed / "model.safetensors").tensors == header.read(EXAMPLES / "draft/model.safetensors").tensors
    assert files(draft) == before
    check = project.run("ckpt", "check", str(fixed), "--target", TARGET, "--engine", "sglang==0.5.8")
    assert check.code == 0, check.out


def test_twice_it_changes_nothing(project, draft):
    assert project.run("ckpt", "fix", str(draft)).code == 0
    again = project.run("ckpt", "fix", str(draft))
    assert (again.code, "is there already" in again.out) == (0, True)
    fixed = f"{draft}-fixed"
    before = files(Path(fixed))
    told = f"nothing to repair\nnow: could not tell\n-> deploy ckpt check {fixed} --target MODEL\n"
    assert project.run("ckpt", "fix", fixed).out == told
    assert project.run("ckpt", "fix", fixed, "--in-place").out == told
    assert files(Path(fixed)) == before
    assert not Path(f"{fixed}-fixed").exists()


def test_the_plan_is_shown_before_anything_is_tried(project, draft, tmp_path):
    (tmp_path / "taken").write_text("")
    done = project.run("ckpt", "fix", str(draft), "--out", str(tmp_path / "taken"))
    assert (done.code, "->  midlayer.hidden_norm.weight" in done.out, "is something else" in done.err) == (
        5,
        True,
        True,
    )
    document = project.run("ckpt", "fix", str(draft), "--out", str(tmp_path / "taken"), "--json").json
    assert (document["exit_code"], "is something else" in document["error"]["what"]) == (5, True)


def test_a_draft_without_a_repair_that_is_dead_all_the_same_is_told_so(project, draft):
    weights = draft / "model.safetensors"
    names = header.read(weights).tensors
    rewrite(weights, weights, {name: name.replace("layers.0.", "layers.00.") for name in names})
    configure(draft, target_hidden_size=128)
    done = project.run("ckpt", "fix", str(draft))
    assert (done.code, done.out.splitlines()) == (
        5,
        ["nothing to repair", "now: will serve at accept length 1.00", f"-> deploy ckpt check {draft} --target MODEL"],
    )


def test_in_place_and_back(project, draft):
    before = files(draft)
    done = project.run("ckpt", "fix", str(draft), "--in-place", "--json")
    assert (done.code, done.json["did"]) == (0, "changed in place")
    assert files(draft)["model.safetensors.orig"] == before["model.safetensors"]
    assert "midlayer.hidden_norm.weight" in header.read(draft / "model.safetensors").tensors
    back = project.run("ckpt", "fix", str(draft), "--undo")
    assert (back.code, "was taken back" in back.out) == (0, True)
    assert files(draft) == before
    nothing = project.run("ckpt", "fix", str(draft), "--undo")
    assert (nothing.code, "there is nothing to take back" in nothing.err) == (5, True)


def test_without_a_copy(project, draft):
    assert project.run("ckpt", "fix", str(draft), "--in-place", "--no-orig").code == 0
    assert sorted(files(draft)) == ["config.json", "model.safetensors"]


def test_a_dry_run_tells_all_and_changes_nothing(project, draft):
    before = files(draft)
    done = project.run("ckpt", "fix", str(draft), "-n", "--json")
    assert (done.code, len(done.json["changes"]), done.json["refusals"]) == (0, 11, [])
    assert files(draft) == before
    assert [path.name for path in draft.parent.glob("draft*")] == ["draft"]


def test_what_cannot_be_repaired_is_told_with_the_reason_and_nothing_is_changed(project, draft):
    configure(draft, norm_before_residual=True)
    before = files(draft)
    done = project.run("ckpt", "fix", str(draft))
    assert done.code == 5
    assert "cannot be repaired: the draft was trained with norm_before_residual" in done.out
    assert done.out.splitlines()[-1] == "nothing was changed"
    as_json = project.run("ckpt", "fix", str(draft), "--json").json
    assert (as_json["exit_code"], as_json["refusals"][0]["remedy"][:5]) == (5, "train")
    assert files(draft) == before
    assert [path.name for path in draft.parent.glob("draft*")] == ["draft"]


def test_a_truncated_file_is_to_be_copied_again(project, draft):
    with (draft / "model.safetensors").open("r+b") as file:
        file.truncate(500_000)
    done = project.run("ckpt", "fix", str(draft))
    assert (done.code, "copy or save the checkpoint again" in done.out) == (5, True)


WRONG = [
    (["--in-place", "--out", "x"], "exclude each other"),
    (["--out", ""], "--out names no folder"),
    (["--no-orig"], "belongs to --in-place"),
    (["--undo", "--in-place"], "--undo goes alone"),
    (["--for", "sglang==old"], "no version of sglang"),
    (["--for", "tgi"], "no rules for an engine 'tgi'"),
    (["--target", "/nowhere"], "/nowhere does not exist"),
]


@pytest.mark.parametrize(("words", "said"), WRONG, ids=[" ".join(case[0]) for case in WRONG])
def test_words_that_make_no_sense_are_refused_before_anything_is_done(project, draft, words, said):
    before = files(draft)
    done = project.run("ckpt", "fix", str(draft), *words)
    assert (done.code, said in done.err, "Traceback" in done.err) == (2, True, False), done.err
    assert files(draft) == before


@pytest.mark.parametrize("path", ["nowhere", "."])
def test_where_there_is_no_checkpoint_it_says_so(project, path):
    done = project.run("ckpt", "fix", path)
    assert (done.code, "Traceback" in done.err) in ((2, False), (5, False)), done.err


def test_a_release_of_this_machine_is_never_changed(project, draft, tmp_path):
    release = tmp_path / "work" / "releases" / "0123"
    shutil.copytree(draft, release)
    Path(f"{release}.json").write_text("{}")
    for path in (release, release / "model.safetensors"):
        done = project.run("ckpt", "fix", str(path), "--in-place")
        assert (done.code, "is a release" in done.err) == (2, True)


def test_the_next_command_takes_back_what_broke_off(project, draft):
    """As after a kill: everything was changed, and the journal is still open."""
    before = files(draft)
    assert project.run("ckpt", "fix", str(draft), "--in-place").code == 0
    (draft / ".deploy-repair.done").rename(draft / ".deploy-repair.begun")
    shown = project.run("ckpt", "show", str(draft), "--json")
    assert "layers.0.hidden_norm.weight" in {tensor["name"] for tensor in shown.json["tensors"]}
    assert files(draft) == before


@pytest.mark.parametrize("where", ["here", "on the host"])
def test_a_draft_is_hashed_as_it_was_before_a_repair_broke_off(project, draft, where):
    path = str(draft) if where == "here" else f"localhost:{draft}"
    project.fake(draft=path)
    wished = project.run("plan", "profile=fake", "--json")
    assert wished.code == 0, wished.err
    assert project.run("ckpt", "fix", str(draft), "--in-place", "--no-orig").code == 0
    repaired = project.run("plan", "profile=fake", "--json")
    (draft / ".deploy-repair.done").rename(draft / ".deploy-repair.begun")
    taken_back = project.run("plan", "profile=fake", "--json")

    def release(done: Done) -> str:
        found = re.search(r'"release": "([0-9a-f]{16})"', done.out)
        assert found, done.out + done.err
        return found[1]

    assert release(taken_back) == release(wished) != release(repaired)


def test_what_would_still_not_serve_is_no_success(project, tmp_path):
    """Nothing to repair is not the same as nothing wrong: `ckpt fix X && restart --ckpt X` must not go on."""
    dead = tmp_path / "dead"
    shutil.copytree(EXAMPLES / "draft", dead)
    weights = dead / "model.safetensors"
    rewrite(EXAMPLES / "draft" / "model.safetensors", weights, {"d2t": "other"})
    done = project.run("ckpt", "fix", str(dead), "--target", TARGET, "--engine", "sglang==0.5.8")
    check = f"deploy ckpt check {dead} --target {TARGET} --engine sglang==0.5.8"
    assert (done.code, done.out.splitlines()) == (
        5,
        ["nothing to repair", "now: will serve at accept length 1.00", f"-> {check}"],
    )
    assert project.run(*check.split()[1:]).code == 5


def test_ids_that_only_vllm_can_mean_are_counted_down(project, tmp_path):
    """Of 6 layers none has the number that [1, 3, 5] would ask for, counted as SGLang does."""
    flat = tmp_path / "flat"
    shutil.copytree(EXAMPLES / "draft", flat)
    config = json.loads((flat / "config.json").read_text())
    del config["eagle_config"]
    (flat / "config.json").write_text(json.dumps({**config, "eagle_aux_hidden_state_layer_ids": [1, 3, 5]}))
    done = project.run("ckpt", "fix", str(flat), "--target", TARGET)
    assert (done.code, done.out.splitlines()[-1]) == (0, "now: will serve")
    fixed = json.loads(Path(f"{flat}-fixed/config.json").read_text())
    assert fixed["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [0, 2, 4]


def test_a_host_that_is_not_there_is_told(project):
    done = project.run("ckpt", "check", "locahost:/data/draft")
    assert done.code == 2
    assert "the inventory has no host 'locahost'" in done.err
    assert "did you mean 'localhost'?" in done.err


def test_a_target_whose_config_says_nothing_is_no_comparison(project):
    target = str(EXAMPLES / "target.gguf")
    done = project.run("ckpt", "check", str(EXAMPLES / "draft"), "--target", target, "--engine", "SGLang==0.5.23")
    assert (done.code, "was not compared with its target" in done.out) == (10, True)
