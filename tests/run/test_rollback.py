"""`deploy rollback` and `on_failure: rollback`: back to the last run that had passed its gates."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.project import EXAMPLES, Project, free_port, with_run

LISTEN = """
import os, socket, sys, time
with socket.create_server(("127.0.0.1", int(sys.argv[1]))), open(sys.argv[2], "w") as pid:
    print(os.getpid(), file=pid, flush=True)
    time.sleep(600)
"""


def another_draft(folder: Path) -> Path:
    """The healthy draft with other bytes."""
    shutil.copytree(EXAMPLES / "draft", folder)
    (folder / "config.json").write_text((folder / "config.json").read_text() + "\n")
    return folder


def waives_what_is_no_check(manifest: Path) -> None:
    """As a version launched it whose checks had other names."""
    said = json.loads(manifest.read_text())
    said["node"]["profile"]["waive"] = ["nope"]
    manifest.write_text(json.dumps(said))


@pytest.mark.parametrize("failures", [0, pytest.param(1, marks=pytest.mark.full), 2])
def test_it_goes_back_to_the_last_good_run(project: Project, tmp_path: Path, failures: int) -> None:
    project.fake()
    assert project.run("up", "profile=fake").code == 0
    good = project.status()
    if failures == 0:
        assert project.run("restart", "--ckpt", str(another_draft(tmp_path / "other"))).code == 0
        assert project.status()["draft"] != good["draft"]
    for number in range(failures):
        dead = project.run("restart", "--ckpt", str(another_draft(tmp_path / f"d{number}")), 'env.FAKE={"die_at":"kv"}')
        assert dead.code == 6, dead.err
        assert f"brings it back: deploy rollback {good['run']} profile=fake" in dead.err
    waives_what_is_no_check(Path(good["folder"]) / "manifest.json")
    done = project.run("rollback")
    assert done.code == 0, done.err
    now = project.status()
    assert (now["state"], now["draft"], now["accept_length"]) == ("serving", good["draft"], pytest.approx(3.0, abs=0.1))
    assert (now["run"] != good["run"], with_run(good["run"])) == (True, [])
    again = project.run("up", "profile=fake", "--json")
    assert (again.code, again.json["verdict"]["mode"]) == (0, "verify"), again.err


def test_it_keeps_the_secrets_of_that_time(project: Project) -> None:
    fails = project.folder / "fails"
    tells = script(project.folder / "tells", f'cut -d = -f 2- "$DEPLOY_RUN_FOLDER/env" >&2; [ ! -e {fails} ]')
    project.fake(secrets={"HF_TOKEN": "env", "SERVER_KEY": "api-key"}, hooks={"ready": [str(tells)]})
    first = {"HF_TOKEN": "first-token", "SERVER_KEY": "first-key-123"}
    assert project.run("up", "profile=fake", env=first).code == 0
    named = project.status()["run"]
    for number in ("second", "third"):
        other = {"HF_TOKEN": f"{number}-token", "SERVER_KEY": f"{number}-key-123"}
        assert project.run("up", "profile=fake", env=other).code == 0
    fails.touch()
    done = project.run("rollback", named)
    assert (done.code, f"the ready hook {tells} ended with status 1" in done.err) == (1, True), done.err
    environ = Path(f"/proc/{with_run(project.status()['run'])[-1]}/environ").read_bytes().split(b"\0")
    assert b"HF_TOKEN=first-token" in environ
    assert "first" not in done.out + done.err
    assert project.run("smoke").code == 0


@contextmanager
def taking(folder: Path, port: int) -> Iterator[Path]:
    """A `prepare` hook after which somebody else listens on a port."""
    (folder / "listen.py").write_text(LISTEN)
    listen = f"setsid {sys.executable} {folder}/listen.py {port} {folder}/pid >/dev/null 2>&1 </dev/null &"
    try:
        yield script(folder / "takes", f"{listen}\nuntil [ -s {folder}/pid ]; do sleep 0.05; done")
    finally:
        os.kill(int((folder / "pid").read_text()), signal.SIGKILL)


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_what_was_stopped_and_has_no_successor_is_named(project: Project, tmp_path: Path) -> None:
    project.fake()
    assert project.run("up", "profile=fake").code == 0
    good, port = project.status(), free_port()
    with taking(tmp_path, port) as hook:
        refused = project.run("restart", f"port={port}", f"hooks.prepare=[{hook}]", "on_failure=rollback")
    assert (refused.code, with_run(good["run"])) == (7, []), refused.err
    words = f"rollback {good['run']} profile=fake"
    assert f"{good['run']}, is stopped; this brings it back: deploy {words}\n" in refused.err
    done = project.run(*words.split())
    assert (done.code, project.status()["draft"]) == (0, good["draft"]), done.err


def test_there_is_nothing_to_go_back_to(project: Project) -> None:
    project.fake(fake={"accept_length": 1.0})
    assert project.run("up", "profile=fake").code == 9
    assert "deploy rollback" not in project.run("restart").err
    before = project.status()
    done = project.run("rollback")
    assert (done.code, "no earlier run" in done.err, project.status()["pid"]) == (5, True, before["pid"]), done.err


def test_a_release_that_is_gone_is_refused_and_nothing_is_touched(project: Project, tmp_path: Path) -> None:
    project.fake()
    assert project.run("up", "profile=fake").code == 0
    release = (Path(project.status()["folder"]) / "draft").resolve()
    assert project.run("restart", "--ckpt", str(another_draft(tmp_path / "other"))).code == 0
    before = project.status()
    shutil.rmtree(release)
    done = project.run("rollback")
    assert (done.code, "gone from the host" in done.err, project.status()["pid"]) == (5, True, before["pid"]), done.err


def test_it_goes_back_to_the_run_that_is_named(project: Project, tmp_path: Path) -> None:
    project.fake()
    assert project.run("up", "profile=fake").code == 0
    first = project.status()
    assert project.run("up", "profile=fake").code == 0
    looked = max((project.folder / "runs").iterdir(), key=lambda folder: folder.stat().st_mtime).name
    for number in range(2):
        assert project.run("restart", "--ckpt", str(another_draft(tmp_path / f"d{number}"))).code == 0
    done = project.run("rollback", first["run"])
    assert (done.code, f"back to run {first['run']}" in done.err) == (0, True), done.err
    assert project.status()["draft"] == first["draft"]
    before = project.status()
    for words, code, what in (
        ([looked, "extra"], 2, "go back to"),
        (["2026"], 2, "runs begin with '2026'"),
        (["nonsense"], 2, "no host has a run 'nonsense'"),
    ):
        done = project.run("rollback", *words)
        assert (done.code, what in done.err) == (code, True), done.err
    shutil.rmtree((Path(first["folder"]) / "draft").resolve())
    done = project.run("rollback", looked, "profile=fake")
    assert (done.code, "had a draft that is gone from the host" in done.err) == (5, True), done.err
    (Path(first["folder"]) / "manifest.json").unlink()
    done = project.run("rollback", looked)
    assert (done.code, "has no manifest" in done.err, project.status()["pid"]) == (5, True, before["pid"]), done.err


def test_a_failed_restart_brings_back_what_served(project: Project, tmp_path: Path) -> None:
    project.fake(on_failure="rollback")
    assert project.run("up", "profile=fake").code == 0
    good = project.status()
    done = project.run("restart", "--ckpt", str(another_draft(tmp_path / "other")), 'env.FAKE={"accept_length":1.0}')
    assert (done.code, "serves again" in done.err) == (9, True), done.err
    now = project.status()
    assert (now["state"], now["draft"], now["accept_length"]) == ("serving", good["draft"], pytest.approx(3.0, abs=0.1))


def test_a_first_launch_that_fails_has_nothing_to_go_back_to(project: Project) -> None:
    project.fake(on_failure="rollback", fake={"die_at": "kv"})
    done = project.run("up", "profile=fake")
    assert (done.code, "no earlier run" in done.err) == (6, True), done.err
