from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deploy import host
from deploy.checkpoint import manifest
from tests.project import PATIENCE

PROGRAM = host.source("digest")


def answer(folder: Path, *options: str, **env: str) -> dict[str, Any]:
    """What a host's own python3 says, the program sent as an argument."""
    done = subprocess.run(
        [sys.executable, "-I", *options, "-c", PROGRAM, str(folder)],
        env={**os.environ, **env},
        capture_output=True,
        check=True,
        timeout=PATIENCE,
    )
    assert done.stderr == b""
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def fill(folder: Path) -> Path:
    for number, name in enumerate(
        ["config.json", "sub/model.safetensors", "a b'\n\u00e9$;.json", ".hidden/x", "empty.json", "a.safetensors.orig"]
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"%d" % number * (3_000_000 if number == 1 else number % 4))
    (folder / "link.json").symlink_to("config.json")
    return folder


@pytest.mark.parametrize("options", [[], ["-X", "utf8=0"]])
@pytest.mark.parametrize("locale", ["C.UTF-8", "C", "POSIX"])
def test_the_host_reads_back_what_the_controller_meant(tmp_path, locale, options):
    there = manifest.Manifest.from_json(answer(fill(tmp_path), *options, LC_ALL=locale))
    assert there == manifest.of(tmp_path)
    assert there.digest == manifest.of(tmp_path).digest
    assert len(there.files) == 5


def test_one_changed_byte_changes_the_digest(tmp_path):
    fill(tmp_path)
    before = manifest.Manifest.from_json(answer(tmp_path))
    with (tmp_path / "sub/model.safetensors").open("r+b") as file:
        file.seek(2_000_000)
        file.write(b"X")
    assert manifest.Manifest.from_json(answer(tmp_path)).digest != before.digest


def test_a_name_that_is_not_unicode_is_told_as_bytes(tmp_path):
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.json"))).write_bytes(b"x")
    assert manifest.Manifest.from_json(answer(tmp_path)).digest == manifest.of(tmp_path).digest


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("a.safetensors", ["config.json", "merges.txt", "tokenizer.json"]),
        ("a.gguf", []),
        ("b-00001-of-00002.gguf", ["b-00002-of-00002.gguf"]),
    ],
)
def test_a_single_file_is_listed_with_what_goes_with_it(tmp_path, name, others):
    for file in (name, *others, "b.safetensors", "model.safetensors.index.json", ".hidden.json", "notes.md"):
        (tmp_path / file).write_text(file)
    (tmp_path / "config.json").write_text("{}")
    there = manifest.Manifest.from_json(answer(tmp_path / name))
    assert there == manifest.of(tmp_path / name)
    assert [file.path for file in there.files] == sorted([name, *others])


def test_a_single_file_that_is_no_checkpoint_is_told(tmp_path):
    assert "is not a checkpoint" in answer(fill(tmp_path) / "config.json")["error"]


WRONG = [
    ("missing", lambda path: path.rmdir(), "No such file"),
    ("a broken link", lambda path: (path / "lost").symlink_to("nowhere"), "No such file"),
    ("a circle", lambda path: (path / "sub").symlink_to(path), "is a link to a folder above it"),
    ("a pipe", lambda path: os.mkfifo(path / "pipe"), "is a socket, a pipe or a device"),
]


@pytest.mark.parametrize(("make", "what"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_what_goes_wrong_is_said_without_a_traceback(tmp_path, make, what):
    folder = tmp_path / "release"
    folder.mkdir()
    make(folder)
    said = answer(folder)
    assert what in said["error"]
    assert said["folder"] == str(folder)


IDENTITY = (Path(__file__).parents[2] / "deploy/host/model_identity.py").read_text()
TARGET = Path(__file__).parents[2] / "examples/tiny-eagle3/target"


def identity(path: Path) -> dict[str, Any]:
    argv = [sys.executable, "-I", "-c", IDENTITY, str(path)]
    done = subprocess.run(argv, capture_output=True, check=True, timeout=PATIENCE)
    assert done.stderr == b""
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def test_a_model_is_told_by_its_heads(tmp_path):
    model = Path(shutil.copytree(TARGET, tmp_path / "model"))
    said = identity(model)
    files = {file["name"]: file for file in said["files"]}
    content = (model / "model.safetensors").read_bytes()
    head = 8 + int.from_bytes(content[:8], "little")
    assert files["model.safetensors"]["sha256"] == hashlib.sha256(content[:head]).hexdigest()
    assert files["model.safetensors"]["mtime_ns"] == (model / "model.safetensors").stat().st_mtime_ns
    assert files["tokenizer.json"]["sha256"] == hashlib.sha256((model / "tokenizer.json").read_bytes()).hexdigest()
    assert said["config"]["vocab_size"] == 512
    assert said["size"] == sum(path.stat().st_size for path in model.iterdir())
    assert identity(model) == said


def test_a_gguf_is_told_by_its_first_mebibyte(tmp_path):
    path = tmp_path / "a.gguf"
    path.write_bytes(b"GGUF" + bytes(3 << 20))
    (file,) = identity(path)["files"]
    assert (file["head"], file["sha256"]) == (1 << 20, hashlib.sha256(path.read_bytes()[: 1 << 20]).hexdigest())


CHANGES = [
    ("config", lambda path: (path / "config.json").write_text("{}")),
    ("mtime", lambda path: os.utime(path / "model.safetensors", ns=(1, 1))),
    ("size", lambda path: os.truncate(path / "model.safetensors", 100_000)),
    ("one file fewer", lambda path: (path / "tokenizer.json").unlink()),
    ("another name", lambda path: (path / "tokenizer.json").rename(path / "t.json")),
]


@pytest.mark.parametrize("change", [case[1] for case in CHANGES], ids=[case[0] for case in CHANGES])
def test_another_model_has_another_identity(tmp_path, change):
    model = Path(shutil.copytree(TARGET, tmp_path / "model"))
    before = identity(model)["identity"]
    change(model)
    assert identity(model)["identity"] != before


def test_a_tensor_renamed_in_place_changes_the_identity(tmp_path):
    model = Path(shutil.copytree(TARGET, tmp_path / "model"))
    before, stamp = identity(model)["identity"], (model / "model.safetensors").stat()
    content = (model / "model.safetensors").read_bytes()
    (model / "model.safetensors").write_bytes(content.replace(b"model.norm", b"model.form"))
    os.utime(model / "model.safetensors", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert identity(model)["identity"] != before


UNKNOWN = [
    ("missing", lambda path: path.rmdir(), "missing"),
    ("empty", lambda _: None, "empty"),
    ("only hidden files", lambda path: (path / ".git").mkdir(), "empty"),
    ("a broken link", lambda path: (path / "config.json").symlink_to("nowhere"), "missing"),
]


@pytest.mark.parametrize(("make", "error"), [case[1:] for case in UNKNOWN], ids=[case[0] for case in UNKNOWN])
def test_a_model_that_cannot_be_told_says_why(tmp_path, make, error):
    model = tmp_path / "model"
    model.mkdir()
    make(model)
    said = identity(model)
    assert (said["error"], said["path"]) == (error, str(model))
    assert said["evidence"]


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 100_000, b"\xff"])
def test_a_config_that_cannot_be_read_is_told_beside_the_identity(tmp_path, content):
    (tmp_path / "config.json").write_bytes(content)
    said = identity(tmp_path)
    assert said["config"] is None
    assert said["config_error"]
    assert said["identity"]


@pytest.mark.parametrize("content", [b"", b"\x01", b"\xff" * 9, (99 << 20).to_bytes(8, "little")])
def test_a_spoilt_shard_still_has_an_identity(tmp_path, content):
    (tmp_path / "model.safetensors").write_bytes(content)
    assert identity(tmp_path)["files"][0]["head"] == len(content)
