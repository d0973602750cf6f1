"""`deploy ckpt check`: the command from its words to its exit code, on broken drafts as they lie on a disk."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.checkpoint import versions
from deploy.ckpt import check, options
from deploy.ckpt.check import How
from deploy.errors import ConfigError
from tests.project import EXAMPLES, Project

TARGET = str(EXAMPLES / "target")
TEXT = options(None, as_json=False)
DEAD = "will serve at accept length 1.00"


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All broken drafts of the example."""
    folder = tmp_path_factory.mktemp("broken")
    subprocess.run([sys.executable, EXAMPLES / "make_dead.py", folder], check=True, capture_output=True)
    shutil.copytree(EXAMPLES / "draft", folder / "healthy")
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


JUDGED: list[tuple[str, str, str, int]] = [
    ("healthy", "sglang==0.5.8", "will serve", 0),
    ("healthy", "sglang==0.5.23", "will serve", 0),
    ("healthy", "vllm==0.32.0", "will serve", 0),
    ("layers0", "sglang==0.5.8", DEAD, 5),
    ("layers0", "sglang==0.5.12", "will serve", 0),
    ("no-d2t", "sglang==0.5.23", DEAD, 5),
    ("no-lm-head", "sglang==0.5.23", DEAD, 5),
    ("no-lm-head", "vllm==0.32.0", DEAD, 5),
    ("unknown-prefix", "sglang==0.5.23", DEAD, 5),
    ("unknown-prefix", "vllm==0.32.0", "will not start", 5),
    ("absolute-d2t", "sglang==0.5.23", "will not start", 5),
    ("wrong-fc", "sglang==0.5.23", "will not start", 5),
    ("truncated", "sglang==0.5.23", "corrupt", 5),
    ("healthy", "vllm==0.99.0", "could not tell", 10),
]


@pytest.mark.parametrize(("name", "engine", "told", "code"), JUDGED)
def test_the_verdict_is_the_first_line_and_the_exit_code(broken, capsys, name, engine, told, code):
    ended = check.run(str(broken / name), TEXT, How(target=TARGET, engine=engine))
    out, err = capsys.readouterr()
    assert (out.splitlines()[0], ended) == (f"{broken / name}: {told} on {engine.replace('==', ' ')}", code)
    assert err == ""


def test_the_trace_is_the_table_that_one_would_write_by_hand(project, broken):
    done = project.run("ckpt", "check", str(broken / "layers0"), "--target", TARGET, "--engine", "sglang==0.5.8")
    lines = [re.sub(r"  +", "  ", line) for line in done.out.splitlines()]
    assert "norm.weight  ->  model.norm.weight  MATCH" in lines
    assert "layers.0.mlp.down_proj.weight  ->  <nowhere>  DROPPED" in lines
    assert "<nothing>  ->  model.midlayer.mlp.down_proj.weight  RANDOM" in lines
    assert "t2d  ->  <nowhere>  IGNORED" in lines
    assert "d2t  ->  hot_token_id  MAP" in lines
    assert any(line.startswith("FAIL") and "drops tensors" in line for line in lines)
    assert any("deploy ckpt fix" in line for line in lines)


def test_without_a_version_each_range_has_its_line_and_a_disagreement_is_no_yes(project, broken):
    done = project.run("ckpt", "check", str(broken / "layers0"), "--target", TARGET)
    assert done.code == 10
    lines = [re.sub(r"  +", "  ", line.strip()) for line in done.out.splitlines()]
    assert lines[0].endswith("layers0: could not tell")
    assert lines[1:4] == [
        f"sglang <0.5.12  {DEAD}",
        "sglang >=0.5.12  will serve",
        "vllm >=0.32,<0.34  will serve",
    ]
    assert "so it is with sglang <0.5.12" in lines
    assert project.run("ckpt", "check", str(broken / "no-d2t"), "--target", TARGET).code == 5, "all agree"
    assert project.run("ckpt", "check", str(broken / "healthy"), "--target", TARGET).code == 0


def test_where_each_version_fails_in_its_own_way_it_is_certain_that_none_will_do(broken, capsys, tmp_path):
    shutil.copytree(broken / "healthy", tmp_path / "two")
    config = json.loads((tmp_path / "two/config.json").read_text())
    (tmp_path / "two/config.json").write_text(json.dumps({**config, "num_hidden_layers": 2}))
    assert check.run(str(tmp_path / "two"), TEXT, How(target=TARGET)) == 5
    lines = [re.sub(r"  +", "  ", line.strip()) for line in capsys.readouterr().out.splitlines()]
    assert lines[0].endswith(f"two: {DEAD}")
    assert lines[1:3] == ["sglang <0.5.12  will not start", f"sglang >=0.5.12  {DEAD}"]


def test_json_is_one_document(project, broken):
    argv = ["ckpt", "check", str(broken / "layers0"), "--target", TARGET, "--json"]
    told = project.run(*argv, "--engine", "sglang==0.5.8").json
    assert (told["verdict"], told["engine"]) == (DEAD, "sglang 0.5.8")
    (finding,) = told["findings"]
    assert (finding["verdict"], finding["outcome"], finding["check"]) == ("FAIL", DEAD, "ckpt")
    landing = {
        "tensor": "norm.weight",
        "parameter": "model.norm.weight",
        "how": "model. prefix",
        "shard": None,
        "why": "",
    }
    assert landing in told["trace"]
    assert "model.midlayer.mlp.down_proj.weight" in told["unfilled"]
    every = project.run(*argv).json
    assert (every["verdict"], every["engine"]) == ("could not tell", None)
    assert {row["verdict"] for row in every["engines"]} == {DEAD, "will serve"}
    assert every["traced"] == "sglang >=0.5.10,<0.5.12", "the worst, and of those the newest"
    assert every["unfilled"]


def test_a_draft_that_was_not_compared_with_a_target_is_not_told_as_fine(project, broken):
    done = project.run("ckpt", "check", str(broken / "healthy"), "--engine", "sglang==0.5.23")
    assert done.code == 10
    assert "--target" in done.out


@pytest.mark.parametrize("name", ["target", "draft.gguf"])
def test_of_what_is_in_no_table_the_files_are_judged_and_no_more(capsys, name):
    assert check.run(str(EXAMPLES / name), TEXT, How()) == 10
    assert "no table says where a server puts the tensors" in capsys.readouterr().out


def test_a_whole_model_that_is_cut_off_is_told(capsys, tmp_path):
    shutil.copytree(TARGET, tmp_path / "target")
    path = tmp_path / "target/model.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    assert check.run(str(tmp_path / "target"), TEXT, How()) == 5
    assert capsys.readouterr().out.splitlines()[0] == f"{tmp_path / 'target'}: corrupt"


WRONG: list[tuple[str, How, str]] = [
    ("/nowhere", How(), "/nowhere does not exist"),
    (TARGET, How(engine="sgland==0.5.8"), "known: sglang, vllm"),
    (TARGET, How(engine="tgi==1.0"), "known: sglang, vllm"),
    (TARGET, How(engine="sglang==newest"), "'newest' is no version of sglang"),
    (TARGET, How(target="/nowhere"), "/nowhere does not exist"),
    (TARGET, How(exact=True, python="/nowhere/python"), "sglang is not installed for /nowhere/python"),
]


@pytest.mark.parametrize(("path", "how", "told"), WRONG)
def test_words_that_are_wrong_are_told_with_what_is_known(path, how, told):
    with pytest.raises(ConfigError) as caught:
        check.run(path, TEXT, how)
    assert told in str(caught.value)
    assert caught.value.exit_code == 2


def test_exact_asks_for_the_version_that_was_named(project, tmp_path):
    """An interpreter that says that it has SGLang 0.5.23, and is asked for another."""
    python = tmp_path / "python"
    answer = {
        "version": "3.11.7",
        "machine": "x86_64",
        "executable": "/p",
        "libc": "",
        "installed": "0.5.23",
        "error": "",
    }
    python.write_text(f"#!/bin/sh\necho '{json.dumps(answer)}'\n")
    python.chmod(0o755)
    words = ["ckpt", "check", str(EXAMPLES / "draft"), "--target", TARGET, "--exact", "--python", str(python)]
    done = project.run(*words, "--engine", "sglang==0.5.8")
    assert (done.code, "has sglang 0.5.23, not 0.5.8" in done.err) == (2, True)
    done = project.run(*words)
    assert "itself could not be asked: this is our table's word" in done.out
    assert done.out.splitlines()[0].endswith("will serve on sglang 0.5.23")


@pytest.mark.parametrize(
    ("text", "meant"), [("sglang", ("sglang", None)), (" vllm == 0.32.0+cpu", ("vllm", "0.32.0+cpu"))]
)
def test_an_engine_may_be_named_with_its_version_or_without(text, meant):
    assert versions.parse(text) == meant


def test_an_engine_without_rules_is_the_users_error():
    with pytest.raises(ConfigError, match="no rules for an engine 'llamacpp'"):
        versions.parse("llamacpp==1")


def test_ranges_are_written_as_pip_would():
    tales = ["a", "a", "a", "b", "b", "c"]
    assert versions.spans("sglang", tales) == [
        ("sglang <0.5.12", "a"),
        ("sglang >=0.5.12,<0.5.18", "b"),
        ("sglang >=0.5.18", "c"),
    ]
    assert versions.spans("sglang", ["a"] * 6) == [("sglang", "a")]
    assert versions.labels("vllm") == ["vllm >=0.32,<0.34"]


def test_a_checkpoint_on_a_host_is_judged_there_beside_a_target_here(project, broken):
    words = ["ckpt", "check", f"localhost:{broken / 'no-d2t'}", "--target", TARGET, "--engine", "sglang==0.5.23"]
    done = project.run(*words)
    assert (done.code, done.out.splitlines()[0]) == (5, f"localhost:{broken / 'no-d2t'}: {DEAD} on sglang 0.5.23")
    healthy = project.run("ckpt", "check", f"localhost:{broken / 'healthy'}", "--target", f"localhost:{TARGET}")
    assert (healthy.code, healthy.err) == (0, "")
    missing = project.run("ckpt", "check", "localhost:/nowhere")
    assert (missing.code, "/nowhere does not exist" in missing.err) == (2, True)


def test_a_warning_does_not_make_sure_of_what_is_in_no_table(capsys, broken, tmp_path):
    """Values of a big model that could not be looked at in time are a WARN as well."""
    folder = tmp_path / "model"
    shutil.copytree(broken / "random-layer", folder)
    (folder / "config.json").write_text('{"architectures": ["OtherForCausalLM"], "model_type": "llama"}')
    assert check.run(str(folder), TEXT, How()) == 10
    out = capsys.readouterr().out
    assert out.index("no table says where") < out.index("look as they are made before")
