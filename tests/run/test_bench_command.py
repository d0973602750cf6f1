"""`deploy bench`: what runs is measured; its baseline is made, and what ran is back, whatever became of it."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.project import FAKE, PATIENCE, Done, Project, until, with_run

# The fake server that misbehaves otherwise where it has no draft.
TWO = """\
#!{python}
import os, sys
plain = "-m" in sys.argv and "--speculative-draft-model-path" not in sys.argv
os.execv({fake!r}, [{fake!r}, *sys.argv[1:], *({words!r} if plain else [])])
"""
BENCH = {"prompts": ["count on", "once more"], "rounds": 2, "most_rounds": 2, "max_tokens": 16}


def served(project: Project, plain: Mapping[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """The fake server with its draft, up; without one it is `plain`."""
    python = project.folder / "engine"
    words = [word for name, value in (plain or {}).items() for word in ("--fake", f"{name}={json.dumps(value)}")]
    python.write_text(TWO.format(python=sys.executable, fake=str(FAKE), words=words))
    python.chmod(0o755)
    project.fake(engine={"name": "sglang", "python": str(python)}, bench=BENCH, **fields)
    up = project.run("up", "profile=fake")
    assert up.code in (0, 9), up.err
    return project.status()


def measured(done: Done) -> dict[str, Any]:
    (found,) = done.json["measured"].values()
    return dict(found)


def is_back(project: Project, before: Mapping[str, Any]) -> None:
    """What runs is what ran, and a rollback goes where it went."""
    now = project.status()
    same = ("state", "draft", "accept_length", "gates_hold")
    assert {name: now[name] for name in same} == {name: before[name] for name in same}
    assert with_run(before["run"]) == [] or now["run"] == before["run"]
    previous = Path(now["folder"]).parent.parent / "previous"
    assert not previous.is_symlink()


def test_what_runs_is_measured_and_goes_on(project: Project) -> None:
    before = served(project, fake={"tokens_per_second": 400})
    done = project.run("bench", "--concurrency", "1,2", "--rounds", "3", "--json")
    assert done.code == 0, done.err
    rungs = measured(done)["rungs"]
    assert [(rung["concurrency"], rung["rounds"]) for rung in rungs] == [(1, 3), (2, 3)]
    assert done.json["verdict"]["holds"] is True
    assert project.status()["pid"] == before["pid"]
    table = project.run("bench", "gates.accept_length=>= 3.5", "--rounds", "2")
    assert (table.code, table.out.split()[:3], table.out.count("\n")) == (9, ["at", "once", "tok/s"], 2), table.err
    now = project.status()
    assert (now["pid"], now["gates_hold"]) == (before["pid"], True), "gates of one command do not judge the run"
    other = project.run("bench", "--prompts", "code", "bench.max_tokens=4", "--rounds", "2")
    own = json.loads((Path(now["folder"]) / "good.json").read_text())["on"]
    assert (other.code, own["max_tokens"], project.status()["gates_hold"]) == (0, 16, True), "nor do other questions"
    wrong = project.run("bench", "--concurrency", "1,x")
    assert (wrong.code, "--concurrency 1,8,32" in wrong.err) == (2, True)
    missing = project.run("bench", "--prompts", "none.jsonl")
    assert (missing.code, "none.jsonl cannot be read" in missing.err) == (2, True), missing.err


def test_the_baseline_is_kept_and_what_ran_is_back(project: Project) -> None:
    before = served(
        project,
        {"tokens_per_second": 100, "answer": "four and five and six and seven and eight and nine and ten and more"},
        fake={"tokens_per_second": 200},
    )
    done = project.run("bench", "--baseline", "--json")
    assert done.code == 0, done.err
    assert (measured(done)["acceptance"], measured(done)["on"]["draft"]) == (None, None)
    assert done.json["back"] == project.status()["run"]
    is_back(project, before)
    again = project.run("bench", "gates.speedup=>= 1.2", "gates.differences=<= 0", "--json")
    found = measured(again)
    assert again.code == 9, again.err
    assert found["baseline"]["run"] == done.json["run"]
    assert 1.2 < found["speedup"]["1"]["value"] < 3
    assert found["quality"]["differ"] == found["quality"]["compared"] > 0
    assert "are answered otherwise than without it" in again.err
    gates = {gate["name"]: gate["holds"] for gate in again.json["verdict"]["gates"]}
    assert gates.pop("speedup") is not False, "one that has failed ends the measuring: the noise may hide it yet"
    assert gates == {"accept_length": True, "differences": False}
    other = project.run("bench", "--prompts", "code", "--rounds", "2")
    assert "was asked otherwise: no speed-up; deploy bench --baseline with" in other.err, "why there is no speed-up"


@pytest.mark.full
def test_what_does_not_speculate_is_its_own_baseline(project: Project) -> None:
    before = served(project, draft=None, speculative=None)
    done = project.run("bench", "--baseline", "--json")
    assert (done.code, done.json["back"], project.status()["pid"]) == (0, "", before["pid"]), done.err
    assert len(list((Path(before["folder"]).parent.parent / "baselines").iterdir())) == 1
    with project.started("try", 'env.FAKE={"phase_seconds":{"graphs":60}},{}') as process:
        until(lambda: project.status()["state"] == "loading")
        process.kill()
    done = project.run("bench", "--baseline", "--json")
    now = project.status()
    assert (done.code, done.json["back"], now["state"], now["why"]) == (0, now["run"], "serving", ""), done.err


@pytest.mark.full
def test_what_ran_is_back_where_the_baseline_dies(project: Project) -> None:
    before = served(project, {"die_at": "kv"}, fake={"accept_length": 1.0}, on_failure="stop")
    project.run("up", "profile=fake", "on_failure=leave")
    before = project.status()
    assert (before["state"], before["gates_hold"]) == ("serving", False), "no good run: no rollback would find it"
    done = project.run("bench", "--baseline", "--json")
    assert (done.code, done.json["failures"][0]["step"], "rollback" in done.err) == (6, "wait", False), done.err
    is_back(project, before)


def test_the_same_again_puts_right_what_a_killed_client_left(project: Project) -> None:
    before = served(project, {"phase_seconds": {"graphs": 60}})
    with project.started("bench", "--baseline") as process:
        until(lambda: project.status()["run"].endswith("-baseline") and project.status()["pid"], what="it is launched")
        process.kill()
    assert project.status()["why"].startswith(f"tried in place of run {before['run']}: deploy rollback brings")
    engine = project.folder / "engine"
    engine.write_text(engine.read_text().replace("60", "0"))
    done = project.run("bench", "--baseline", "--json")
    assert (done.code, measured(done)["on"]["draft"]) == (0, None), done.err
    is_back(project, before)
    assert (done.json["back"], project.status()["why"]) == (project.status()["run"], "")


@pytest.mark.full
def test_a_server_that_lost_its_launcher_is_back_too(project: Project) -> None:
    before = served(project)
    os.kill(int(before["pid"]), signal.SIGKILL)
    until(lambda: "lost its launcher" in project.status()["why"])
    done = project.run("bench", "--baseline", "--json")
    assert (done.code, project.status()["state"]) == (0, "serving"), done.err


def test_what_ran_is_back_after_a_ctrl_c(project: Project) -> None:
    before = served(project, {"phase_seconds": {"graphs": 60}})
    with project.started("bench", "--baseline") as process:
        until(lambda: project.status()["run"].endswith("-baseline") and project.status()["pid"], what="it is launched")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, "is brought back" in err) == (130, True), err
    is_back(project, before)
