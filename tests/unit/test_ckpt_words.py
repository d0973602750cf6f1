"""What `deploy ckpt check` makes of odd words, odd names and odd versions, and what it shows of them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.checkpoint import facts, versions
from deploy.checkpoint.rules import Serving
from deploy.checkpoint.trace import Trace
from deploy.ckpt import check, options
from deploy.ckpt.check import How
from deploy.errors import ConfigError
from tests.checkpoints import weights
from tests.project import EXAMPLES, Project

TARGET, DRAFT = str(EXAMPLES / "target"), EXAMPLES / "draft"
TEXT = options(None, as_json=False)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


WORDS: list[tuple[str, str, str]] = [  # a path, what is told, what to do
    ("", "a path is empty", "name a folder"),
    ("gpu9:/x", "gpu9:/x does not exist, and the inventory has no host 'gpu9'", "--project"),
    ("localhost:", "names nothing on localhost", "write it as localhost:/"),
    ("nowhere", "does not exist", "name a folder"),
]


@pytest.mark.parametrize(("path", "told", "remedy"), WORDS)
def test_a_path_that_names_nothing_is_told_with_what_to_do(project, tmp_path, monkeypatch, path, told, remedy):
    monkeypatch.chdir(tmp_path)
    done = project.run("ckpt", "check", path)
    assert (done.code, told in done.err, remedy in done.err) == (2, True, True), done.err


@pytest.mark.parametrize("keep", [False, True])
def test_an_install_that_does_not_know_its_version_is_judged_for_all(keep):
    """As `--exact` meets it where SGLang is an editable install: with and without an answer of its own."""
    draft = facts.read(DRAFT)
    traced = Trace((), ("lm_head.weight",)) if keep else None
    rows = check._spans(draft, None, Serving("sglang", "0.0.0"), traced)
    assert [row.server for row in rows] == versions.labels("sglang")
    with pytest.raises(ConfigError, match="does not know its version"):
        check.run(str(DRAFT), TEXT, How(engine="sglang==0.0.0"))


def test_names_of_tensors_forge_no_line_and_stretch_no_column(tmp_path, capsys):
    folder = tmp_path / "odd\nname"
    shutil.copytree(DRAFT, folder)
    weights(folder / "more.safetensors", {"a\nFAIL \x1b[31mforged": ("U8", [1]), "x" * 5000: ("U8", [1])})
    check.run(str(folder), TEXT, How(target=TARGET, engine="sglang==0.5.23"))
    out = capsys.readouterr().out
    assert out.splitlines()[0] == f"{tmp_path}/odd name: could not tell on sglang 0.5.23"
    assert "\x1b" not in out
    assert not any(line.startswith("FAIL") for line in out.splitlines())
    assert max(map(len, out.splitlines())) < 600


def test_what_the_table_shows_is_not_told_again(tmp_path, capsys):
    subprocess.run([sys.executable, EXAMPLES / "make_dead.py", tmp_path], check=True, capture_output=True)
    check.run(str(tmp_path / "layers0"), TEXT, How(target=TARGET, engine="sglang==0.5.8"))
    out = capsys.readouterr().out
    assert "rows of the table above" in out
    assert out.count("layers.0.mlp.up_proj.weight") == 1


@pytest.mark.parametrize(
    ("file", "verdict", "code"), [("", "could not tell", 10), ("pytorch_model.bin", "could not tell", 10)]
)
def test_a_warning_makes_no_whole_model_one_that_will_serve(tmp_path, capsys, file, verdict, code):
    shutil.copytree(TARGET, tmp_path / "model")
    if file:
        (tmp_path / "model" / file).write_bytes(b"\x80")
    assert check.run(str(tmp_path / "model"), TEXT, How()) == code
    assert capsys.readouterr().out.splitlines()[0].endswith(f": {verdict}")


@pytest.mark.parametrize("command", ["show", "check", "diff"])
def test_a_config_that_holds_nan_still_makes_a_json_document(tmp_path, project, command):
    folder = tmp_path / "odd"
    shutil.copytree(DRAFT, folder)
    text = (
        (folder / "config.json").read_text().replace("{", '{"one": NaN, "two": [-Infinity], "rms_norm_eps": NaN, ', 1)
    )
    (folder / "config.json").write_text(text)
    done = project.run("ckpt", command, str(folder), *([str(DRAFT)] if command == "diff" else []), "--json")
    json.loads(done.out, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
