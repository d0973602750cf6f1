from __future__ import annotations

import json
import os
import socket
import threading
from pathlib import Path

import pytest

from deploy.checkpoint import manifest
from deploy.errors import ConfigError, DeployError

DRAFT = Path(__file__).parents[2] / "examples/tiny-eagle3/draft"


def write(root: Path, *names: str, content: bytes = b"x") -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


def age(path: Path, seconds: int = 60) -> None:
    """As if it had been written a while ago: what is young is not remembered."""
    before = path.stat().st_mtime - seconds
    os.utime(path, (before, before))


SOURCES = [
    (
        "a folder: every file, sorted",
        ["b.json", "a.safetensors", "sub/c.txt"],
        "",
        ["a.safetensors", "b.json", "sub/c.txt"],
    ),
    ("kept originals stay behind", ["config.json", "a.safetensors.orig", "a.safetensors.orig.1"], "", ["config.json"]),
    ("hidden files stay behind", ["config.json", ".git/objects/1", ".gitattributes"], "", ["config.json"]),
    (
        "weights file: its config beside it, no other weights, no index",
        [
            "e1.safetensors",
            "e2.safetensors",
            "config.json",
            "chat.jinja",
            "model.safetensors.index.json",
            "optimizer.pt",
        ],
        "e1.safetensors",
        ["chat.jinja", "config.json", "e1.safetensors"],
    ),
    ("a gguf goes alone", ["a.gguf", "b.gguf", "config.json"], "a.gguf", ["a.gguf"]),
    (
        "a split gguf goes with its other parts",
        ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "n-00001-of-00002.gguf"],
        "m-00001-of-00002.gguf",
        ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"],
    ),
    ("names with spaces, quotes, newlines, unicode", ["a b'\"$;\n\u00e9.json"], "", ["a b'\"$;\n\u00e9.json"]),
    (
        "a pickle beside safetensors is sent as it is",
        ["a.safetensors", "training.bin"],
        "",
        ["a.safetensors", "training.bin"],
    ),
]


@pytest.mark.parametrize(("names", "path", "expected"), [case[1:] for case in SOURCES], ids=[c[0] for c in SOURCES])
def test_the_files_that_are_meant(tmp_path, names, path, expected):
    write(tmp_path, *names)
    assert manifest.source(tmp_path / path).files == tuple(expected)
    assert [file.path for file in manifest.of(tmp_path / path).files] == expected


REFUSED = [
    ("missing", [], "nowhere", "does not exist"),
    ("empty", [], "", "is empty"),
    ("only hidden files", [".gitattributes"], "", "is empty"),
    ("a pickle", ["draft.pt"], "draft.pt", "is a pickle"),
    ("pickles only", ["config.json", "pytorch_model.bin"], "", "only as pickles"),
    ("a file of another kind", ["notes.md"], "notes.md", "is not a checkpoint"),
    ("weights without config", ["a.safetensors"], "a.safetensors", "no config.json beside"),
    ("one shard", ["model-00001-of-00002.safetensors", "config.json"], "model-00001-of-00002.safetensors", "one shard"),
    ("one part", ["m-00001-of-00002.gguf"], "m-00001-of-00002.gguf", "some are missing"),
]


@pytest.mark.parametrize(("names", "path", "what"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_what_cannot_be_sent_is_refused(tmp_path, names, path, what):
    write(tmp_path, *names)
    with pytest.raises(ConfigError) as error:
        manifest.of(tmp_path / path)
    assert what in error.value.what
    assert str(tmp_path) in error.value.what


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(path / "s"))  # a socket's path is at most 107 bytes long


ODD = [
    ("a socket", _socket, "is a socket, a pipe or a device"),
    ("a pipe", lambda path: os.mkfifo(path / "pipe"), "is a socket, a pipe or a device"),
    ("a device", lambda path: (path / "null").symlink_to("/dev/null"), "is a socket, a pipe or a device"),
    ("a broken link", lambda path: (path / "lost").symlink_to("nowhere"), "does not exist"),
    ("a circle", lambda path: (path / "sub").symlink_to(path), "is a link to a folder above it"),
]


@pytest.mark.parametrize(("make", "what"), [case[1:] for case in ODD], ids=[case[0] for case in ODD])
def test_odd_things_in_a_folder_are_refused(tmp_path, make, what):
    write(tmp_path, "config.json")
    make(tmp_path)
    with pytest.raises(ConfigError, match=what):
        manifest.of(tmp_path)


def test_links_are_followed_as_a_downloader_leaves_them(tmp_path):
    write(tmp_path, "blobs/1234", content=b"weights")
    snapshot = tmp_path / "snapshots/main"
    snapshot.mkdir(parents=True)
    (snapshot / "model.safetensors").symlink_to("../../blobs/1234")
    (file,) = manifest.of(snapshot).files
    assert (file.path, file.size) == ("model.safetensors", 7)


def test_the_digest_is_of_the_listing_alone(tmp_path):
    first = manifest.of(write(tmp_path / "one", "config.json", "a.safetensors"))
    same = manifest.of(write(tmp_path / "two", "a.safetensors", "config.json"))
    renamed = manifest.of(write(tmp_path / "three", "b.safetensors", "config.json"))
    changed = manifest.of(write(tmp_path / "four", "a.safetensors", "config.json", content=b"y"))
    assert first.digest == same.digest
    assert len({first.digest, renamed.digest, changed.digest}) == 3
    assert (first.short, first.size) == (first.digest[:16], 2)


def test_the_digest_never_changes_between_versions_of_the_tool():
    # it names folders on hosts: another digest would push everything again
    assert manifest.Manifest((manifest.File("a.json", 1, "00"),)).short == "35f798d7878f45b4"


def test_what_is_known_is_not_read_again(tmp_path):
    path = write(tmp_path, "a.gguf") / "a.gguf"
    age(path)
    cache = tmp_path / "cache/digests.json"
    first = manifest.of(path, cache)
    known = json.loads(cache.read_text())
    known[str(path)][3] = "f" * 64
    cache.write_text(json.dumps(known))
    assert manifest.of(path, cache).files[0].sha256 == "f" * 64
    age(path)
    assert manifest.of(path, cache) == first


def test_a_young_file_is_not_remembered(tmp_path):
    cache = tmp_path / "cache"
    manifest.of(write(tmp_path, "a.gguf") / "a.gguf", cache)
    assert not cache.exists()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"PATH": 1}', b'{"PATH": [1]}', b"[" * 100_000, b"\xff"])
def test_a_spoilt_cache_is_ignored_and_rebuilt(tmp_path, content):
    path = write(tmp_path, "a.gguf") / "a.gguf"
    age(path)
    cache = tmp_path / "cache"
    cache.write_bytes(content.replace(b"PATH", str(path).encode()))
    expected = manifest.of(path)
    assert manifest.of(path, cache) == expected
    assert json.loads(cache.read_text())[str(path)][3] == expected.files[0].sha256


def test_a_cache_that_cannot_be_written_costs_only_speed(tmp_path):
    path = write(tmp_path, "a.gguf", "not-a-folder") / "a.gguf"
    age(path)
    assert manifest.of(path, tmp_path / "not-a-folder/cache").size == 1


def test_a_file_that_grows_while_it_is_read_is_an_error(tmp_path):
    path = write(tmp_path, "a.gguf") / "a.gguf"
    os.truncate(path, 64 << 20)
    done = threading.Event()

    def train():
        with path.open("ab", buffering=0) as more:
            while not done.wait(0.001):
                more.write(b"more")

    trainer = threading.Thread(target=train)
    trainer.start()
    try:
        with pytest.raises(ConfigError, match="changed while it was read"):
            manifest.of(path)
    finally:
        done.set()
        trainer.join()


def test_a_staged_source_holds_exactly_its_files(tmp_path):
    write(tmp_path / "in", "a.safetensors", "sub/b.json", ".git/c", "config.json", content=b"abc")
    with manifest.source(tmp_path / "in").staged() as folder:
        assert manifest.of(folder) == manifest.of(tmp_path / "in")
        assert sorted(path.name for path in folder.iterdir()) == ["a.safetensors", "config.json", "sub"]
    assert not folder.exists()
    assert (tmp_path / "in/sub/b.json").read_bytes() == b"abc"


def test_a_hosts_error_is_told():
    with pytest.raises(DeployError, match="cannot read back /releases/1") as error:
        manifest.Manifest.from_json({"folder": "/releases/1", "error": "Permission denied"})
    assert error.value.evidence == "Permission denied"


@pytest.mark.parametrize("home", [True, False])
def test_the_cache_lies_where_caches_lie(tmp_path, monkeypatch, home):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "" if home else "/var/cache/me")
    expected = f"{tmp_path}/.cache" if home else "/var/cache/me"
    assert str(manifest.cache_file()) == f"{expected}/deploy/digests.json"


def test_a_manifest_survives_the_record(tmp_path):
    there = manifest.of(write(tmp_path, "config.json", "\u00e9\n.gguf"))
    assert manifest.Manifest.from_json(json.loads(json.dumps(there.to_json()))) == there


def test_the_trained_draft_can_be_pushed():
    assert {"config.json", "model.safetensors"} <= set(manifest.source(DRAFT).files)
