"""Checkpoints on a host: sent once, read back, immutable; what was interrupted or spoilt is mended."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.checkpoint import manifest
from deploy.deployment import releases
from deploy.deployment.state import Machine, Place
from deploy.errors import DeployError, Locked
from deploy.events import Event
from deploy.inventory import Host
from deploy.locking import lease
from deploy.plan import Draft
from deploy.remote import Remote
from deploy.transport.local import LocalTransport

NAMES = ["config.json", 'a b\'s } \n"é".json', "sub/model.safetensors", "-rf.json"]


@pytest.fixture
def draft(tmp_path: Path) -> Draft:
    folder = tmp_path / "draft"
    for number, name in enumerate(NAMES):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(bytes([number]) * (number + 1) * 1000)
    (folder / ".git").mkdir()
    (folder / ".git" / "x").write_text("not a part of it")
    return Draft(str(folder), manifest.of(folder))


@pytest.fixture
def said() -> list[Event]:
    return []


@pytest.fixture
def remote(tmp_path: Path, said: list[Event]) -> Iterator[Remote]:
    at = Host.model_validate({"name": "here", "transport": "local", "lock": str(tmp_path / "lock")})
    made = Remote(at, LocalTransport("here"), said.append, threading.Event())
    work = f"{tmp_path}/work"
    made.place = Place(Machine("id", "here", "me", "/home/me", work, f"{work}/id", {}), "kimi", "r1")
    with lease.take(at, made.transport, "test") as made.lease:
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "work" / "releases"


def content(release: str | Path) -> dict[str, bytes]:
    root = Path(release)
    return {str(file.relative_to(root)): file.read_bytes() for file in root.rglob("*") if file.is_file()}


def wanted(draft: Draft) -> dict[str, bytes]:
    return {name: (Path(draft.path) / name).read_bytes() for name in NAMES}


def test_a_draft_becomes_a_release_named_by_what_is_in_it(draft, remote, folder):
    release, outcome = releases.bring(draft, str(folder), remote)
    assert release == f"{folder}/{draft.manifest.short}"
    assert content(release) == wanted(draft)
    assert outcome == "10 kB in 4 files sent, sha256 equal"
    assert json.loads(Path(f"{release}.json").read_text())["from"] == draft.path
    assert sorted(path.name for path in folder.iterdir()) == sorted([draft.digest, f"{draft.digest}.json"])


def test_what_is_there_is_not_sent_again(draft, remote, folder):
    release, _ = releases.bring(draft, str(folder), remote)
    before = Path(release).stat()
    again, outcome = releases.bring(draft, str(folder), remote)
    assert again == release
    assert "is there" in outcome
    assert Path(release).stat().st_ino == before.st_ino


DAMAGES = [
    ("a file is gone", lambda release: (release / "config.json").unlink()),
    ("a file is cut short", lambda release: os.truncate(release / "config.json", 10)),
    ("there is one too many", lambda release: (release / "more.json").write_text("x")),
    ("the manifest is gone", lambda release: release.with_name(f"{release.name}.json").unlink()),
    ("the manifest is spoilt", lambda release: release.with_name(f"{release.name}.json").write_text("{")),
]


@pytest.mark.parametrize("damage", [case[1] for case in DAMAGES], ids=[case[0] for case in DAMAGES])
def test_a_release_that_is_not_what_it_was_is_set_aside_and_sent_again(damage, draft, remote, folder, said):
    release, _ = releases.bring(draft, str(folder), remote)
    damage(Path(release))
    spoilt = content(release)
    again, outcome = releases.bring(draft, str(folder), remote)
    assert (again, content(again)) == (release, wanted(draft))
    assert "sent" in outcome
    assert content(folder / f".{draft.digest}.damaged") == spoilt
    assert any("is not what it was" in event.text for event in said)
    assert "is there" in releases.bring(draft, str(folder), remote)[1]


def incoming(draft: Draft, folder: Path) -> Path:
    return folder / f".{draft.digest}.id.incoming"


def test_a_push_that_was_cut_short_goes_on(draft, remote, folder):
    half = incoming(draft, folder)
    half.mkdir(parents=True)
    (half / "config.json").write_bytes(b"ha")
    release, _ = releases.bring(draft, str(folder), remote)
    assert content(release) == wanted(draft)
    assert not half.exists()


@pytest.mark.parametrize(("name", "is_there", "stays"), [
    (".{this}.id.incoming", False, True),  # to be gone on with
    (".{this}.id.incoming", True, False),  # another host with this folder was faster
    (".0123456789abcdef.id.incoming", False, False),
    (".0123456789abcdef.other-machine.incoming", False, True),
    (".made-by-a-hook.incoming", False, True),
])  # fmt: skip
def test_what_earlier_pushes_left_is_cleared_away(draft, remote, folder, name, is_there, stays):
    left = folder / name.format(this=draft.digest)
    left.mkdir(parents=True)
    if is_there:
        (folder / draft.digest).mkdir()
    remote.change(releases.BEGIN, remote.place.folder, str(folder), "id", draft.digest)
    assert (left.exists(), Path(remote.place.folder).is_dir()) == (stays, True)


def test_what_arrives_otherwise_is_told_and_sent_anew_by_the_next_run(draft, remote, folder):
    half, source = incoming(draft, folder), Path(draft.path) / "config.json"
    half.mkdir(parents=True)
    (half / "config.json").write_bytes(b"x" * source.stat().st_size)  # of the right size and time
    os.utime(half / "config.json", ns=(source.stat().st_atime_ns, source.stat().st_mtime_ns))
    with pytest.raises(DeployError, match="what arrived is not what was sent") as caught:
        releases.bring(draft, str(folder), remote)
    assert caught.value.evidence == "differs: config.json"
    assert not (folder / draft.digest).exists()
    release, _ = releases.bring(draft, str(folder), remote)
    assert content(release) == wanted(draft)


def test_a_host_that_was_faster_with_the_same_folder_is_no_trouble(draft, remote, folder):
    release, _ = releases.bring(draft, str(folder), remote)
    second = folder / "second"
    LocalTransport().push(Path(release), str(second), progress=lambda *_: None, timeout=10)
    releases.seal(draft.manifest, str(second), release, remote, origin="x")
    assert content(release) == wanted(draft)
    assert not second.exists()


@pytest.mark.parametrize("of", ["{}", "~/draft", "draft"])
@pytest.mark.parametrize("name", ["", "/sub/model.safetensors"])
def test_a_draft_that_lies_on_the_host_is_copied_there(of, name, draft, remote, folder, monkeypatch):
    monkeypatch.setenv("HOME", str(Path(draft.path).parent))
    Path(draft.path, "sub/config.json").write_text("{}")
    there = of.format(draft.path) + name
    lying = Draft(there, releases.digest(there, remote), "here")
    release, _ = releases.bring(lying, str(folder), remote)
    assert {file.path for file in lying.manifest.files} <= content(release).keys()
    assert releases.digest(release, remote) == lying.manifest
    assert not name or content(release).keys() == {"config.json", "model.safetensors"}


def test_the_run_serves_the_release_that_it_is_linked_to(draft, remote, folder):
    release, _ = releases.bring(draft, str(folder), remote)
    run = Path(remote.place.folder)
    run.mkdir(parents=True)
    for target in ("/elsewhere", release):
        releases.link(target, remote.place, remote)
        assert (run / "draft").readlink() == Path(target)
    assert [path.name for path in run.iterdir()] == ["draft"]


def test_nothing_is_brought_without_the_lock(draft, remote, folder):
    assert remote.lease
    remote.lease.release()
    with pytest.raises(Locked):
        releases.bring(draft, str(folder), remote)
    assert not folder.exists()
