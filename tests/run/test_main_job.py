"""The main job with the real command line, on a server that misbehaves on demand: exit codes, words, what is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from deploy.host import header
from tests.project import EXAMPLES, PATIENCE, ROOT, Project, free_port, listens, until, with_run

ENDINGS: dict[str, tuple[dict[str, Any], dict[str, Any], int, str]] = {
    # case: (misbehaviour, profile fields, exit code, words)
    "all is well": ({}, {}, 0, "accept length 3.00"),
    "it dies while loading": ({"die_at": "weights", "die_error": "oom"}, {}, 6, "out of memory"),
    "it dies without a word": ({"die_at": "args", "die_error": "none"}, {}, 6, "before it was ready"),
    "it is silent": ({"silent_at": "graphs"}, {"ready": {"deadline": 30, "stall": 1}}, 7, "no sign of life"),
    "it takes too long": (
        {"phase_seconds": {"weights": 60}}, {"ready": {"deadline": 1.5, "stall": 60}}, 7, "not ready after",
    ),
    "it answers for another model": ({"model": "/models/other"}, {}, 7, "not tiny"),
    "it answers nonsense": ({"answer": "blue"}, {}, 8, "does not match"),
    "the draft is dead": ({"accept_length": 1.0}, {}, 9, "not one drafted token is accepted"),
    "the draft is weak": ({"accept_length": 1.1}, {}, 9, "below its gates"),
    "it tells no acceptance": ({"acceptance": False}, {}, 10, "could not be measured"),
    "another engine is wanted": ({}, {"engine": {"version": "==0.5.8"}}, 5, "==0.5.8 is wanted"),
    "it has no such flag": ({}, {"args": {"contxt-length": 9}}, 5, "did you mean --context-length?"),
    "the model is missing": ({}, {"model": {"path": "/srv/no/such/model"}}, 5, "cannot be read"),
    "the draft is missing": ({}, {"draft": "/srv/no/such/draft"}, 2, "does not exist"),
    "the answer stands in the reasoning": ({"reasoning": "only"}, {}, 0, "done"),
    "it is not ready at once": ({"unready_seconds": 1}, {}, 0, "done"),
}  # fmt: skip


@pytest.mark.parametrize("case", ENDINGS)
def test_each_ending_has_its_exit_code_and_its_words(project: Project, case: str) -> None:
    wrong, fields, code, words = ENDINGS[case]
    project.fake(fake=wrong)
    path = project.folder / "profiles" / "fake.yaml"
    path.write_text(path.read_text().replace("\nready:", "\nwas_ready:") if "ready" in fields else path.read_text())
    project.fake(fake=wrong, **_merged(fields))
    done = project.run("up", "profile=fake")
    assert (done.code, words in done.err) == (code, True), done.err


def _merged(fields: dict[str, Any]) -> dict[str, Any]:
    """Parts of the fake profile that a case overrides keep what they had."""
    base: dict[str, Any] = {
        "engine": {"name": "sglang", "python": str(Path(__file__).parent.parent / "fake_server.py")},
        "model": {"path": str(EXAMPLES / "target"), "name": "tiny"},
    }
    return {key: {**base[key], **value} if key in base else value for key, value in fields.items()}


def test_a_second_up_verifies_and_does_not_restart(project: Project) -> None:
    project.fake()
    assert project.run("up", "profile=fake").code == 0
    before = project.status()
    again = project.run("up", "profile=fake", "--json")
    assert (again.code, again.json["verdict"]["mode"]) == (0, "verify"), again.err
    assert project.status()["pid"] == before["pid"]


def test_only_what_changes_the_server_replaces_it(project: Project) -> None:
    project.fake()
    assert project.run("up", "profile=fake").code == 0
    for words, mode in (
        ("smoke.max_tokens=50", "verify"),
        ("gates.accept_length=>= 1.2", "verify"),
        ("env.X=1", "replace"),
        ("args.log-level=debug", "replace"),
        ("speculative.num_steps=2", "replace"),
    ):
        done = project.run("up", "profile=fake", "--json", words)
        assert (done.code, done.json["verdict"]["mode"]) == (0, mode), (words, done.err)


def test_down_leaves_no_process_and_no_port(project: Project) -> None:
    port = project.fake(fake={"children": 2, "orphans": 1, "stragglers": 1})
    assert project.run("up", "profile=fake").code == 0
    run = project.status()["run"]
    assert len(with_run(run)) >= 4
    assert project.run("down").code == 0
    assert (with_run(run), listens(port), project.status()["state"]) == ([], False, "stopped")


def test_a_server_that_ignores_term_is_killed(project: Project) -> None:
    project.fake(fake={"ignore_term": True}, ready={"deadline": 30, "stall": 15, "patience": 0.5})
    assert project.run("up", "profile=fake").code == 0
    done = project.run("down")
    assert (done.code, "KILL" in done.err) == (0, True), done.err


def test_a_client_killed_while_the_server_loads_loses_nothing(project: Project) -> None:
    project.fake(fake={"phase_seconds": {"weights": 3}})
    with project.started("up", "profile=fake") as client:
        loading = until(lambda: _alive(project), what="a server that loads")
        client.kill()
    done = project.run("up", "profile=fake", "--json")
    assert (done.code, done.json["verdict"]["mode"]) == (0, "verify"), done.err
    assert project.status()["pid"] == loading["pid"]


def _alive(project: Project) -> Any:
    row = project.status()
    return row if row["state"] in ("loading", "serving") and row["pid"] else None


def test_a_second_operator_is_told_who_holds_the_host(project: Project) -> None:
    project.fake(fake={"phase_seconds": {"weights": 20}})
    with project.started("up", "profile=fake"):
        until(lambda: _alive(project), what="a server that loads")
        done = project.run("up", "profile=fake")
    assert (done.code, "locked by" in done.err, "up profile=fake" in done.err) == (4, True, True), done.err


def test_ctrl_c_after_the_launch_detaches(project: Project) -> None:
    project.fake(fake={"phase_seconds": {"weights": 5}})
    with project.started("up", "profile=fake") as client:
        until(lambda: _alive(project), what="a server that loads")
        until(lambda: _step(project, "wait"), what="the step wait")
        client.send_signal(signal.SIGINT)
        _, err = client.communicate(timeout=PATIENCE)
    assert (client.returncode, "detached" in err) == (130, True), err
    assert project.status()["state"] in ("loading", "serving")


def _step(project: Project, step: str) -> bool:
    try:
        return any(event.get("step") == step for event in project.events())
    except (OSError, IndexError, json.JSONDecodeError):
        return False


WAITING = "#!/bin/sh\ntouch '{folder}/here'\nwhile [ ! -e '{folder}/go' ]; do sleep 0.05; done\n"


def test_ctrl_c_before_the_launch_says_what_was_done(project: Project) -> None:
    hook = project.folder / "slow"
    hook.write_text(WAITING.format(folder=project.folder))
    hook.chmod(0o755)
    project.fake(hooks={"prepare": [{"run": "slow", "timeout": 20}]})
    with project.started("up", "profile=fake") as client:
        until((project.folder / "here").exists, what="the hook")
        client.send_signal(signal.SIGINT)
        (project.folder / "go").touch()
        _, err = client.communicate(timeout=PATIENCE)
    assert (client.returncode, "no server was touched" in err) == (130, True), err


def test_a_foreign_server_on_the_port_is_named_and_left_alone(project: Project) -> None:
    port = free_port()
    foreign = subprocess.Popen(
        ["python3", "-m", "http.server", str(port), "--bind", "127.0.0.1"], stderr=subprocess.DEVNULL
    )
    try:
        until(lambda: listens(port), what="the foreign server")
        project.fake(port=port)
        done = project.run("up", "profile=fake")
        assert (done.code, f"pid {foreign.pid}" in done.err, foreign.poll()) == (5, True, None), done.err
        done = project.run("up", "profile=fake", "evict=yes")
        assert (done.code, foreign.wait(PATIENCE) is not None) == (0, True), done.err
    finally:
        foreign.kill()
        foreign.wait()


def test_a_restart_repeats_what_was_added_and_taken_away(project: Project) -> None:
    project.fake(env={"FAKE": '{"lifetime": 120}', "MINE": "1"}, args={"max-running-requests": 7})
    words = ("+env.NEW=1", "~env.MINE", "~args.max-running-requests", "bench.prompts=[a]")
    assert project.run("up", "profile=fake", *words).code == 0
    assert project.run("restart", "+env.MORE=2").code == 0
    folder = Path(project.status()["folder"])
    env, script = (folder / "env").read_text(), (folder / "launch.sh").read_text()
    assert ("NEW=1" in env, "MORE=2" in env, "MINE" in env, "max-running" in script) == (True, True, False, False)
    done = project.run("restart", "+env.NEW=2")
    assert (done.code, "env.NEW is there already, by command line +env.NEW=1" in done.err) == (2, True), done.err
    assert project.run("up", "profile=fake", *words, "+env.MORE=2", "--json").json["verdict"]["mode"] == "verify"


def test_a_restart_with_another_draft_is_not_undone_unasked(project: Project, tmp_path: Path) -> None:
    other = tmp_path / "other draft"
    other.mkdir()
    for file in (EXAMPLES / "draft").iterdir():
        (other / file.name).write_bytes(file.read_bytes())
    (other / "config.json").write_text((other / "config.json").read_text() + "\n")
    project.fake()
    assert project.run("up", "profile=fake").code == 0
    assert project.run("restart", "--ckpt", str(other)).code == 0
    assert project.run("restart").code == 0, "a restart keeps the checkpoint"
    assert project.status()["draft_from"] == str(other)
    refused = project.run("up", "profile=fake")
    assert (refused.code, str(other) in refused.err) == (2, True), refused.err
    assert project.run("up", "profile=fake", "-y").code == 0
    assert project.status()["draft_from"] == str(EXAMPLES / "draft")


def test_on_failure_stop_leaves_nothing_running(project: Project) -> None:
    project.fake(fake={"accept_length": 1.0}, on_failure="stop")
    assert project.run("up", "profile=fake").code == 9
    assert project.status()["state"] == "stopped"


def test_secrets_reach_the_server_and_nobody_else(project: Project) -> None:
    secret = "s3cr3t 'with' \"quotes\" $HOME; # and more"
    project.fake(secrets={"HF_TOKEN": "env", "SERVER_KEY": "api-key"})
    env = {"HF_TOKEN": secret, "SERVER_KEY": "key-0123456789"}
    done = project.run("up", "profile=fake", "-vv", env=env)
    assert done.code == 0, done.err
    row = project.status()
    folder = Path(row["folder"])
    environ = Path(f"/proc/{with_run(row['run'])[-1]}/environ").read_bytes().split(b"\0")
    assert f"HF_TOKEN={secret}".encode() in environ
    assert {oct((folder / name).stat().st_mode & 0o777) for name in ("env", "secrets.yaml", "secrets.json")} == {
        "0o600"
    }
    recorded = "".join(path.read_text() for path in (project.folder / "runs").rglob("*.json*"))
    for value in env.values():
        assert value not in done.err + recorded + (folder / "manifest.json").read_text()
        assert all(value.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in with_run(row["run"]))
    assert project.run("smoke").code == 0, "the key is read from the run's folder"
    missing = project.run("up", "profile=fake", "env.X=1")
    assert (missing.code, "HF_TOKEN" in missing.err) == (2, True), missing.err


def test_values_arrive_unchanged(project: Project) -> None:
    wild = "a b'c\"d$HOME;e\nf`id`\\ \t*?[x] é漢 #!"
    args = {"x-note": wild, "x-dash": "-n"}
    project.fake(args=args, smoke={"ask": wild, "expect": "."}, waive=["flags"])
    path = project.folder / "profiles" / "fake.yaml"
    path.write_text(path.read_text().replace("env:\n", f"env:\n  WILD: {json.dumps(wild)}\n", 1))
    assert project.run("up", "profile=fake").code == 0
    pids = with_run(project.status()["run"])
    server = next(pid for pid in pids if b"--model-path" in Path(f"/proc/{pid}/cmdline").read_bytes())
    words = Path(f"/proc/{server}/cmdline").read_bytes().split(b"\0")
    assert words[words.index(b"--x-note") + 1] == wild.encode()
    assert f"WILD={wild}".encode() in Path(f"/proc/{server}/environ").read_bytes().split(b"\0")


HOOK = """#!/bin/sh
env | grep ^DEPLOY_ >"{out}.env"
cat >"{out}.node"
{more}
"""


@pytest.mark.parametrize("on", ["controller", "host"])
@pytest.mark.parametrize(("point", "code"), [("prepare", 0), ("ready", 0), ("failed", 9), ("stopped", 0)])
def test_hooks_run_at_their_points_with_their_environment(project: Project, point: str, code: int, on: str) -> None:
    out = project.folder / "out"
    hook = project.folder / "hook"
    hook.write_text(HOOK.format(out=out, more=""))
    hook.chmod(0o755)
    wrong = {"accept_length": 1.0} if point == "failed" else {}
    port = project.fake(fake=wrong, hooks={point: [{"run": "hook", "on": on}]})
    assert project.run("up", "profile=fake").code == code
    if point == "stopped":
        assert project.run("down").code == 0
    told = dict(line.split("=", 1) for line in (project.folder / "out.env").read_text().splitlines())
    assert (told["DEPLOY_POINT"], told["DEPLOY_PORT"], told["DEPLOY_HOST"]) == (point, str(port), "localhost")
    assert json.loads((project.folder / "out.node").read_text())["profile"]["port"] == port


def test_a_hook_that_fails_stops_the_run_with_its_words(project: Project) -> None:
    hook = project.folder / "hook"
    hook.write_text("#!/bin/sh\necho the disk is on fire >&2\nexit 3\n")
    hook.chmod(0o755)
    project.fake(hooks={"prepare": [{"run": "hook"}]})
    done = project.run("up", "profile=fake")
    assert (done.code, "the disk is on fire" in done.err, "status 3" in done.err) == (1, True, True), done.err


def test_a_check_can_be_waived_by_name_and_that_is_shown(project: Project) -> None:
    project.fake(
        engine={"name": "sglang", "python": str(EXAMPLES.parent.parent / "tests/fake_server.py"), "version": "==0.1"}
    )
    assert project.run("up", "profile=fake").code == 5
    done = project.run("up", "profile=fake", "waive=[engine]", "--json")
    assert (done.code, done.json["verdict"]["waived"]) == (0, ["engine"]), done.err


def test_nothing_is_touched_when_a_check_fails(project: Project) -> None:
    project.fake()
    assert project.run("up", "profile=fake").code == 0
    before = project.status()
    done = project.run("up", "profile=fake", "engine.version===0.1", "env.X=1")
    assert (done.code, project.status()["pid"]) == (5, before["pid"]), done.err


def test_a_lapsed_lease_fences_the_client(tmp_path: Path) -> None:
    project = Project(tmp_path / "project", lease=1.0)
    hook = project.folder / "hook"
    hook.write_text(WAITING.format(folder=project.folder))
    hook.chmod(0o755)
    project.fake(hooks={"prepare": [{"run": "hook", "timeout": 60}]})
    with project.started("up", "profile=fake") as frozen:
        until((project.folder / "here").exists, what="the hook")
        os.kill(frozen.pid, signal.SIGSTOP)
        until(lambda: (project.folder / "lock").read_text() == "", seconds=PATIENCE, what="the lease to lapse")
        (project.folder / "go").touch()
        os.kill(frozen.pid, signal.SIGCONT)
        _, err = frozen.communicate(timeout=PATIENCE)
    assert (frozen.returncode, "lease" in err) == (4, True), err
    assert project.status()["state"] == "nothing deployed"


@pytest.mark.parametrize("on", ["controller", "host"])
def test_a_prepared_draft_is_served_while_the_wished_one_is_compared(project: Project, tmp_path: Path, on: str) -> None:
    subprocess.run(["python3", EXAMPLES / "make_dead.py", tmp_path, "layers0"], check=True, capture_output=True)
    hook = {"run": str(ROOT / "hooks" / "fix_eagle3_keys"), "on": on}
    unmeasured = ("bench.prompts=[]", "gates={}")  # 0.5.8 is asked by its tokenizer; the fake has none
    project.fake(draft=str(tmp_path / "layers0"), hooks={"prepare": [hook]}, fake={"version": "0.5.8"})
    done = project.run("up", "profile=fake", *unmeasured)
    assert done.code == 0, done.err
    before = project.status()
    manifest = json.loads((Path(before["folder"]) / "manifest.json").read_text())
    served = (Path(before["folder"]) / "draft").resolve()
    wished = Path(before["folder"]).parents[3] / "releases" / manifest["node"]["draft"]["manifest"]["digest"][:16]
    assert (served.name, served != wished) == (manifest["served_draft"], True)
    assert _layers(served) == {"midlayer"}
    assert _layers(wished) == {"layers"}, "the original is kept"
    again = project.run("up", "profile=fake", *unmeasured, "--json")
    assert (again.code, again.json["verdict"]["mode"], project.status()["pid"]) == (0, "verify", before["pid"]), (
        again.err
    )


def _layers(release: Path) -> set[str]:
    """How the layer's tensors are spelled in a release."""
    names = header.read(release / "model.safetensors").tensors
    return {name.split(".")[0] for name in names if name.split(".")[0] in ("midlayer", "layers", "model")}


def test_a_server_that_writes_a_lot_costs_neither_time_nor_disk_here(project: Project) -> None:
    project.fake(fake={"log_bytes": 60_000_000})
    assert project.run("up", "profile=fake", timeout=PATIENCE).code == 0
    assert project.run("up", "profile=fake", timeout=PATIENCE).code == 0, "it is adopted with the end of its log alone"
    for events in (project.folder / "runs").glob("*/events.jsonl"):
        assert events.stat().st_size < 1_000_000
