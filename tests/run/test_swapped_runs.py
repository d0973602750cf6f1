"""Runs whose draft was exchanged in the server of another one: each is a run of its own, and their process is one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deploy.events import GONE_BACK
from tests import marked
from tests.project import SWAPPABLE, Project, ended, free_port, until, with_run

NONE: Mapping[str, str] = {}


def first(project: Project, folder: Path, secrets: Mapping[str, str] = NONE, **fake: Any) -> dict[str, Any]:
    """The first run of a server that takes new weights, with the draft `one`, as `status` tells it."""
    for number, name in enumerate(("one", "two"), 1):
        marked.draft(folder / name, 4.0 - number, number)
    engine = {"name": "sglang", "python": str(SWAPPABLE)}
    project.fake(draft=str(folder / "one"), engine=engine, secrets=dict(secrets), fake=fake)
    assert project.run("up", "profile=fake").code == 0
    return project.status()


@pytest.fixture
def served(project: Project, tmp_path: Path) -> dict[str, Any]:
    return first(project, tmp_path)


def exchanged(project: Project, draft: Path) -> dict[str, Any]:
    done = project.run("restart", "--hot", "--ckpt", str(draft))
    assert done.code == 0, done.err
    return project.status()


@contextmanager
def followed(project: Project) -> Iterator[Path]:
    """What `logs -f` has printed so far."""
    out = project.folder / "followed"
    with out.open("wb") as file:
        argv = project.argv("logs", "-f", "-n", "100000")
        process = subprocess.Popen(
            argv, cwd=project.folder, env=project.environ, stdin=subprocess.DEVNULL, stdout=file, stderr=file
        )
    try:
        yield out
    finally:
        process.kill()
        process.wait()


def test_each_has_its_own_life_and_all_end_with_their_server(project, served, tmp_path):
    log = Path(served["folder"]) / "server.log"
    with followed(project) as seen:
        until(lambda: seen.read_text() == log.read_text(), what="its log until now")
        second = exchanged(project, tmp_path / "two")
        assert (second["server"], second["pid"]) == (served["run"], served["pid"])
        assert (second["run"], second["loaded"]) != (served["run"], served["loaded"])
        Path(second["folder"], "weights.json").unlink()
        asked = project.run("smoke")  # which holds no lock, and writes nothing down
        assert asked.code == 0, asked.err
        verified = project.run("up", "profile=fake", f"draft={tmp_path / 'two'}", "--json")
        assert (verified.code, verified.json["verdict"]["mode"]) == (0, "verify"), verified.err
        assert Path(second["folder"], "weights.json").exists()
        back = project.run("rollback")
        assert (back.code, "exchanged" in back.err) == (0, True), back.err
        third = project.status()
        assert (third["server"], third["pid"], third["loaded"]) == (served["run"], served["pid"], served["loaded"])
        assert Path(third["folder"], "pid").readlink() == Path(f"../{served['run']}/pid")
        assert project.told("phases") + project.told("phase") == [], "what the log tells of a start is not its own"
        assert [one["server"] for one in project.told("swap")] == [served["run"]]
        until(lambda: seen.read_text() == log.read_text(), what="the log goes on, and nothing of it is told twice")

    told = project.run("explain").out
    assert f"run {third['run']} (in the server of run {served['run']}) lives" in told
    assert project.run("logs", "--phase", "--json").json["localhost"]["run"] == served["run"]
    assert project.run("down").code == 0
    assert (project.status()["state"], with_run(served["run"])) == ("stopped", [])
    for run in (served, second, third):
        assert Path(run["folder"], "stopped").read_text().startswith("by deploy at")
    assert Path(second["folder"], "stopped").is_symlink()


def test_one_that_was_killed_is_explained_and_comes_back_in_a_server_of_its_own(project, served, tmp_path):
    second = exchanged(project, tmp_path / "two")
    for pid in with_run(served["run"]):
        os.kill(pid, signal.SIGKILL)
    until(lambda: project.status()["state"] == "dead", what="its process is gone")
    assert f"(in the server of run {served['run']}) ended by a kill" in project.run("explain").out
    refused = project.run("restart", "--hot", "--ckpt", str(tmp_path / "one"))
    assert (refused.code, f"run {second['run']} ended by a kill" in refused.err) == (5, True), refused.err

    fresh = project.run("restart", "--ckpt", str(tmp_path / "one"))
    assert (fresh.code, "it restarts" in fresh.err) == (0, False), fresh.err  # where nothing runs, nobody wonders why
    assert project.status()["loaded"] == served["loaded"]
    back = project.run("rollback", second["run"], "--cold")
    assert back.code == 0, back.err
    now = project.status()
    assert (now["run"], now["loaded"]) == (now["server"], second["loaded"])
    again = project.run("up", "profile=fake", f"draft={tmp_path / 'two'}", "--json")
    assert again.json["verdict"]["mode"] == "verify", again.err


def test_what_fails_its_gates_gives_way_to_the_one_before_in_the_same_server(project, served, tmp_path):
    dead = marked.draft(tmp_path / "dead", 1.0, 3)
    done = project.run("restart", "--ckpt", str(dead), "on_failure=rollback")
    assert done.code == 9, done.err
    now = project.status()
    assert (now["server"], now["pid"], now["loaded"]) == (served["run"], served["pid"], served["loaded"])
    assert (now["gates_hold"], now["run"].endswith(GONE_BACK)) == (True, True)


def test_a_rollback_goes_by_the_secrets_of_that_time(project, tmp_path):
    project.environ["SERVER_KEY"] = "first-key-123"
    served = first(project, tmp_path, {"SERVER_KEY": "api-key"})
    exchanged(project, tmp_path / "two")
    project.environ["SERVER_KEY"] = "second-key-45"
    back = project.run("rollback")
    now = project.status()
    assert (back.code, now["pid"], now["loaded"]) == (0, served["pid"], served["loaded"]), back.err

    done = project.run("restart", "--cold", "--ckpt", str(tmp_path / "two"))
    assert done.code == 0, done.err
    back = project.run("rollback")
    assert (back.code, "it restarts: the secret SERVER_KEY differs" in back.err) == (0, True), back.err
    now = project.status()
    assert (now["server"], now["loaded"], project.run("smoke").code) == (now["run"], served["loaded"], 0)


def test_a_server_that_dies_of_an_exchange_is_explained_and_restarted(project, tmp_path):
    before = first(project, tmp_path, faults={"/update_weights_from_tensor": "die"})
    done = project.run("restart", "--ckpt", str(tmp_path / "two"))
    assert done.code == 0, done.err
    assert "it restarts: the server died while its draft was exchanged" in done.err
    assert "the server ended with exit code 137" in done.err
    assert ("step_skipped", "swap") in [(event["kind"], event.get("step")) for event in project.events()]
    now = project.status()
    assert (now["state"], now["server"], with_run(before["run"])) == ("serving", now["run"], [])
    assert not Path(now["folder"], "pid").is_symlink()


def test_a_replica_that_kept_its_draft_is_left_alone_on_the_way_back(tmp_path):
    """Of two, the one on b takes no other draft."""
    refuses = {"a": {}, "b": {"faults": {"/pause_generation": "refuse"}}}
    hosts = {
        name: {
            "transport": "local",
            "work": str(tmp_path / name / "work"),
            "lock": str(tmp_path / f"{name}.lock"),
            "set": {"port": free_port(), "env.FAKE": json.dumps({"lifetime": 120, **fake})},
        }
        for name, fake in refuses.items()
    }
    project = Project(tmp_path / "project", hosts, lease=3.0)
    try:
        first(project, tmp_path)
        two = str(tmp_path / "two")
        a, b = project.run("status", "--json").json
        tried = project.run("try", two, "--hot", "--json")
        assert (tried.code, tried.json["left"]["what"]) == (7, "before"), tried.err
        back, kept = project.run("status", "--json").json
        assert (kept["run"], kept["pid"], back["pid"], back["loaded"]) == (b["run"], b["pid"], a["pid"], a["loaded"])

        with project.started("try", two, "--hot", "bench.rounds=99") as process:
            why = until(lambda: project.status()["why"], what="it is exchanged")
            process.kill()
        assert f"tried in place of run {back['run']}:" in why
        again = project.run("try", two, "--hot", "--json")
        assert f"run {back['run']} is meant" in again.err
        back, kept = project.run("status", "--json").json
        assert (kept["pid"], back["pid"], back["loaded"]) == (b["pid"], a["pid"], a["loaded"]), again.err

        both = project.run("restart", "--ckpt", two, "--json")
        now, other = project.run("status", "--json").json
        assert (now["pid"] == a["pid"], other["pid"] == b["pid"]) == (True, False), both.err
        assert both.json["verdict"]["mode"] == "replace", "the most that was done to any of them"
    finally:
        ended(tmp_path / "a")
        ended(tmp_path / "b")


def tear(run: dict[str, Any]) -> None:
    Path(run["folder"], "swap.json").write_text('{"new": "r3", "shm": "torch_1_x_", "since": 0}')


def test_a_torn_one_is_told_as_such_and_replaced(project, served, tmp_path):
    second = exchanged(project, tmp_path / "two")
    tear(served)
    torn = project.status()
    assert (torn["state"], torn["loaded"], torn["pid"]) == ("torn", None, served["pid"])
    for command in (("smoke",), ("ask", "Who?")):
        refused = project.run(*command)
        assert (refused.code, "an exchange of its draft broke off" in refused.err) == (7, True), refused.err
    assert "torn  an exchange of its draft broke off" in project.run("explain").out
    (marked.draft(tmp_path / "broken", 3.0) / "model.safetensors").write_bytes(b"")
    tried = project.run("try", str(tmp_path / "broken"), "--json")
    back = project.status()
    assert (tried.code, back["state"], back["loaded"]) == (5, "serving", second["loaded"]), "torn is not served"
    assert tried.json["left"] == {"what": "before", "of": second["run"], "run": back["run"]}
    tear(back)
    mended = project.run("up", "profile=fake", "-y", "--json")
    assert (mended.code, mended.json["verdict"]["mode"]) == (0, "replace"), mended.err
    now = project.status()
    assert (now["state"], now["loaded"], with_run(served["run"])) == ("serving", served["loaded"], [])

    tear(now)
    back = project.run("rollback")
    assert (back.code, f"back to run {now['run']}" in back.err) == (0, True), back.err
    assert (project.status()["loaded"], with_run(now["run"])) == (served["loaded"], [])
