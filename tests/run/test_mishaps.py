"""What went wrong once, each a case: words that were ignored, servers that were misjudged, moments misnamed."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.project import EXAMPLES, LOCAL, PATIENCE, Project, until, with_run

STRAY: list[tuple[list[str], str]] = [
    (["down", "staging"], "did you mean profile=staging?"),
    (["status", "foo"], "did you mean profile=foo?"),
    (["logs", "foo"], "did you mean profile=foo?"),
    (["smoke", "foo"], "did you mean profile=foo?"),
    (["logs", "localhost"], "did you mean --hosts localhost?"),
    (["down", "port=1"], "means nothing here"),
    (["status", "profile=nosuch"], "no host has a deployment nosuch"),
    (["up", "profile=fake", "profile=local"], "one is meant"),
    (["up", "fake"], "profile=fake"),
    (["up", "profile=fake", "args.port=1234"], "is said by `port`"),
    (["up", "profile=fake", "args.api-key=x"], "secrets: {NAME: api-key}"),
    (["up", "profile=fake", "waive=[prt]"], "there is no check 'prt'"),
    (["restart", "waive=[prt]"], "did you mean 'ports'?"),
    (["up", "profile=fake", "hooks.ready=[hooks/nosuch]"], "there is no hook"),
]


@pytest.fixture
def serving(project: Project) -> Project:
    project.fake()
    assert project.run("up", "profile=fake").code == 0
    return project


def test_words_that_mean_nothing_are_refused_and_nothing_is_touched(serving: Project) -> None:
    before = serving.status()
    told = [(words, serving.run(*words), said) for words, said in STRAY]
    assert [(words, done.err) for words, done, said in told if done.code != 2 or said not in done.err] == []
    assert serving.status()["pid"] == before["pid"]


def test_a_server_that_was_told_to_end_is_not_taken_for_good(serving: Project) -> None:
    before = serving.status()
    (Path(before["folder"]) / "stopped").write_text("by deploy at noon\n")
    done = serving.run("up", "profile=fake", "--json")
    assert (done.code, done.json["verdict"]["mode"]) == (0, "replace"), done.err
    assert serving.status()["pid"] != before["pid"]


def test_ctrl_c_in_stop_says_that_the_old_server_was_told_to_end(project: Project) -> None:
    project.fake(fake={"ignore_term": True}, ready={"deadline": 30, "stall": 15, "patience": 30})
    assert project.run("up", "profile=fake").code == 0
    folder = Path(project.status()["folder"])
    with project.started("restart") as client:
        until((folder / "stopped").exists, what="TERM")
        client.send_signal(signal.SIGINT)
        _, err = client.communicate(timeout=PATIENCE)
    assert (client.returncode, "was told to end" in err) == (130, True), err


def test_a_missing_secret_is_told_before_the_old_server_is_stopped(project: Project) -> None:
    project.fake(secrets={"SOME_TOKEN": "env", "SERVER_KEY": "api-key"})
    env = {"SOME_TOKEN": "token-123", "SERVER_KEY": "key-12345"}
    assert project.run("up", "profile=fake", env=env).code == 0
    before = project.status()
    for broken in ({"SERVER_KEY": "key"}, {**env, "SERVER_KEY": "two\nlines"}):
        done = project.run("restart", env=broken)
        assert (done.code, project.status()["pid"]) == (2, before["pid"]), done.err


def test_a_secret_stays_hidden_in_the_json_document_too(project: Project) -> None:
    project.fake(secrets={"SERVER_KEY": "api-key"}, fake={"die_at": "weights", "die_error": "none"})
    done = project.run("up", "profile=fake", "--json", env={"SERVER_KEY": "keykeykey456"})
    assert (done.code, "keykeykey456" in done.out + done.err) == (6, False)


def test_a_restart_stays_on_the_hosts_of_the_deployment(tmp_path: Path) -> None:
    hosts = {
        name: {"transport": "local", "work": str(tmp_path / name), "lock": f"{tmp_path}/{name}.lock"} for name in "ab"
    }
    project = Project(tmp_path / "project", hosts)
    project.fake(hosts="all")
    try:
        assert project.run("up", "profile=fake", "--hosts", "a").code == 0
        assert project.run("restart").code == 0
        states = {row["host"]: row["state"] for row in project.run("status", "--json").json}
        assert (states["a"], states["b"]) == ("serving", "nothing deployed")
    finally:
        assert project.run("down").code == 0


def test_a_hook_runs_whatever_its_path_holds(tmp_path: Path) -> None:
    project = Project(tmp_path / "p=9 x", LOCAL)
    hook = project.folder / "no"
    hook.write_text("#!/bin/sh\nexit 3\n")
    hook.chmod(0o755)
    project.fake(hooks={"prepare": [{"run": "no"}]})
    done = project.run("up", "profile=fake")
    assert (done.code, "status 3" in done.err) == (1, True), done.err


HOOKS: list[tuple[str, str]] = [
    ("echo '{\"draft\": null}'", "whole path"),
    ('echo \'{"draft": "rel"}\'', "whole path"),
    ("echo hello", "whole path"),
    ("sleep 60", "still ran after 1 s"),
]


@pytest.mark.parametrize(("body", "said"), HOOKS)
def test_a_hook_that_misbehaves_is_named(project: Project, body: str, said: str) -> None:
    hook = project.folder / "hook"
    hook.write_text(f"#!/bin/sh\n{body}\n")
    hook.chmod(0o755)
    project.fake(hooks={"prepare": [{"run": "hook", "timeout": 1}]})
    done = project.run("up", "profile=fake")
    assert (done.code, said in done.err, "hook" in done.err) == (1, True, True), done.err


def rename_host(project: Project) -> None:
    path = project.folder / "inventory.yaml"
    hosts = yaml.safe_load(path.read_text())["hosts"]
    path.write_text(yaml.safe_dump({"hosts": {"renamed": hosts["localhost"]}}))


def spoil_manifest(project: Project, text: str) -> None:
    (Path(project.status()["folder"]) / "manifest.json").write_text(text)


SPOILT: dict[str, Any] = {
    "the host has another name": rename_host,
    "its manifest is no object": lambda project: spoil_manifest(project, "[]"),
    "its manifest is rubbish": lambda project: spoil_manifest(project, '{"a": 1}'),
    "its manifest is empty": lambda project: spoil_manifest(project, ""),
    "its node is null": lambda project: spoil_manifest(project, '{"node": null}'),
    "the link to it is broken": lambda project: next((project.folder / "work").glob("*/fake/current")).unlink(),
}


@pytest.mark.parametrize("case", SPOILT)
def test_what_runs_can_always_be_seen_and_ended(serving: Project, case: str) -> None:
    run = serving.status()["run"]
    SPOILT[case](serving)
    rows = serving.run("status", "--json").json
    assert rows[0]["state"] in ("serving", "loading"), rows
    done = serving.run("down")
    assert (done.code, with_run(run)) == (0, []), done.err


def test_a_server_that_lost_its_launcher_is_not_called_dead(serving: Project) -> None:
    before = serving.status()
    os.kill(int(before["pid"]), signal.SIGKILL)
    row = until(lambda: (row := serving.status()) and row["why"] and row, what="the loss to show")
    assert (row["state"], "lost its launcher" in row["why"]) == ("serving", True), row
    done = serving.run("up", "profile=fake", "--json")
    assert (done.code, done.json["verdict"]["mode"]) == (0, "replace"), done.err


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])


def test_a_server_that_was_killed_and_left_processes_is_dead_and_they_are_ended(project: Project) -> None:
    project.fake(fake={"orphans": 1, "stragglers": 1})
    assert project.run("up", "profile=fake").code == 0
    row = project.status()
    server = next(pid for pid in with_run(row["run"]) if parent_of(pid) == int(row["pid"]))
    os.kill(server, signal.SIGKILL)
    row = until(lambda: (row := project.status())["state"] == "dead" and row, what="the death to show")
    assert "died with exit code 137, but 2 of its processes live" in row["why"]
    assert (project.run("down").code, with_run(row["run"])) == (0, [])


def test_a_deployment_on_this_machine_is_seen_though_no_inventory_names_it(tmp_path: Path) -> None:
    other = {"a": {"transport": "local", "work": str(tmp_path / "a"), "lock": str(tmp_path / "a.lock")}}
    project = Project(tmp_path / "project", other)
    project.environ["HOME"] = str(tmp_path)  # where `localhost` keeps what it has
    project.fake(hosts="localhost")
    assert project.run("up", "profile=fake").code == 0
    try:
        rows = project.run("status", "--json").json
        assert {row["host"]: row["state"] for row in rows} == {"a": "nothing deployed", "localhost": "serving"}
    finally:
        assert project.run("down", "profile=fake").code == 0


def test_a_hooks_child_is_not_taken_for_the_server(project: Project) -> None:
    hook = project.folder / "hook"
    hook.write_text('#!/bin/sh\nsetsid sleep 60 >/dev/null 2>&1 </dev/null & echo $! >"$0.pid"\n')
    hook.chmod(0o755)
    project.fake(hooks={"ready": [{"run": "hook"}]})
    assert project.run("up", "profile=fake").code == 0
    child = int((project.folder / "hook.pid").read_text())
    try:
        assert project.run("down").code == 0
        assert Path(f"/proc/{child}").exists()
    finally:
        os.kill(child, signal.SIGKILL)


def test_the_tool_may_be_called_from_a_child_of_the_server_that_it_ends(serving: Project) -> None:
    done = serving.run("down", env={"DEPLOY_SERVER": serving.status()["folder"]})
    assert done.code == 0, done.err


def test_a_restart_repeats_what_was_asked_last_though_it_was_only_verified(serving: Project) -> None:
    assert serving.run("up", "profile=fake", "smoke.expect=4").code == 0
    refused = serving.run("up", "profile=fake", "smoke.expect=nothing like it")
    assert refused.code == 8
    done = serving.run("restart")
    assert (done.code, "nothing like it" in done.err) == (8, True), done.err


def test_a_release_that_was_edited_in_place_is_sent_again(serving: Project) -> None:
    release = (Path(serving.status()["folder"]) / "draft").resolve() / "model.safetensors"
    data = bytearray(release.read_bytes())
    data[-1] ^= 1
    release.write_bytes(data)
    done = serving.run("restart")
    assert (done.code, "is not what it was" in done.err + json.dumps(serving.events())) == (0, True), done.err
    sent = (Path(serving.status()["folder"]) / "draft").resolve() / "model.safetensors"
    assert sent.read_bytes() == (EXAMPLES / "draft" / "model.safetensors").read_bytes()


def test_a_release_that_was_only_touched_is_read_and_kept(serving: Project) -> None:
    release = (Path(serving.status()["folder"]) / "draft").resolve() / "model.safetensors"
    os.utime(release, (1, 1))
    assert serving.run("restart").code == 0
    assert release.stat().st_mtime == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_cancelled_job_and_a_closed_terminal_are_told_as_ctrl_c(project: Project, number: signal.Signals) -> None:
    project.fake(fake={"phase_seconds": {"weights": 20}})
    with project.started("up", "profile=fake", "--json") as client:
        until(lambda: _waits(project), what="the step wait")
        client.send_signal(number)
        out, err = client.communicate(timeout=PATIENCE)
    assert (client.returncode, json.loads(out)["exit_code"], "detached" in err) == (130, 130, True), err
    assert project.events()[-1]["kind"] == "run_ended"


def _waits(project: Project) -> bool:
    try:
        return any(event.get("step") == "wait" for event in project.events())
    except (OSError, IndexError, ValueError):
        return False


def test_a_second_operator_who_took_over_is_why_the_first_one_failed(tmp_path: Path) -> None:
    project = Project(tmp_path / "project", LOCAL, lease=1.0)
    project.fake(fake={"phase_seconds": {"weights": 25}})
    with project.started("up", "profile=fake") as frozen:
        until(lambda: _waits(project), what="the step wait")
        os.kill(frozen.pid, signal.SIGSTOP)
        until(lambda: (project.folder / "lock").read_text() == "", seconds=PATIENCE, what="the lease to lapse")
        assert project.run("down").code == 0
        os.kill(frozen.pid, signal.SIGCONT)
        _, err = frozen.communicate(timeout=PATIENCE)
    assert (frozen.returncode, "lease" in err) == (4, True), err


def test_what_the_readiness_question_was_answered_is_told(project: Project) -> None:
    project.fake(fake={"codes": {"/health_generate": 500}}, ready={"deadline": 3, "stall": 30})
    done = project.run("up", "profile=fake")
    assert (done.code, "GET /health_generate: 500" in done.err) == (7, True), done.err


def test_a_home_that_is_not_there_is_no_reason_to_fail(serving: Project) -> None:
    assert serving.run("status", env={"HOME": "/nonexistent"}).code == 0


def test_a_draft_may_go_to_a_place_below_the_home(project: Project, tmp_path: Path) -> None:
    project.environ["HOME"] = str(tmp_path)
    project.fake(draft={"path": str(EXAMPLES / "draft"), "to": "~/drafts"})
    assert project.run("up", "profile=fake").code == 0
    assert [path.suffix for path in (tmp_path / "drafts").iterdir() if path.suffix] == [".json"]


def test_plan_says_by_its_code_that_a_host_was_not_asked(tmp_path: Path) -> None:
    gone = {"gone": {"address": "127.0.0.1", "port": 1, "user": "nobody"}}
    project = Project(tmp_path / "project", gone)
    project.fake(hosts="gone")
    done = project.run("plan", "profile=fake", "--json")
    assert (done.code, done.json["nodes"][0]["now"]["mode"]) == (3, "unknown"), done.err
