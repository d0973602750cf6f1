"""Gates over whole runs: how noise, the last good run and what is missing end a run, and what becomes of the server."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.project import EXAMPLES, Project

BENCH = {"prompts": ["How are you?", "And you?"], "max_tokens": 400, "rounds": 2, "most_rounds": 4}
SLOWER = {"accept_length": 3.0, "wanes": 0.05}  # two prompts a round: each round has 0.1 less


def judged(project: Project, name: str = "accept_length") -> dict[str, Any]:
    """A gate of the last verdict on the host."""
    verdict = json.loads((Path(project.status()["folder"]) / "verdict.json").read_text())
    [gate] = [one for one in verdict["gates"] if one["name"] == name]
    return dict(gate)


@pytest.mark.parametrize(
    ("gate", "code", "state", "rounds", "words"),
    [
        (">= 1.5", 0, "holds", 2, "accept_length 2."),
        (">= 2.2", 0, "holds", 4, "the noise hides whether accept_length holds: 2 more rounds"),
        (">= 2.6", 10, "within", 4, "the noise hides whether accept_length holds, after 4 rounds"),
        (">= 3.9", 9, "fails", 2, "below its gates: accept_length 2."),
    ],
    ids=["far", "near", "too-near", "beyond"],
)
def test_rounds_that_differ_are_judged_with_their_noise(
    project: Project, gate: str, code: int, state: str, rounds: int, words: str
) -> None:
    project.fake(bench=BENCH, fake=SLOWER, gates={"accept_length": gate})
    done = project.run("up", "profile=fake")
    assert (done.code, words in done.err) == (code, True), done.err
    found = judged(project)
    assert (found["state"], found["rounds"]) == (state, rounds), found
    assert found["margin"] > 0.01
    now = project.status()
    good = Path(now["folder"]) / "good.json"
    assert (now["state"], now["gates_hold"], good.exists()) == ("serving", code == 0, code == 0)


def test_what_is_less_than_the_last_good_run_is_replaced_by_it(project: Project, tmp_path: Path) -> None:
    gates = {"accept_length": ">= 0.95 x last good"}
    project.fake(bench=BENCH, gates=gates, on_failure="rollback")
    first = project.run("up", "profile=fake")
    assert (first.code, "no last good run to compare with" in first.err) == (0, True), first.err
    good = project.status()
    again = project.run("up", "profile=fake")
    assert (again.code, judged(project)["run"]) == (0, good["run"]), again.err
    other = tmp_path / "other"
    shutil.copytree(EXAMPLES / "draft", other)
    (other / "config.json").write_text((other / "config.json").read_text() + "\n")
    done = project.run("restart", "--ckpt", str(other), 'env.FAKE={"accept_length":2.0}', "--json")
    assert done.code == 9, done.err
    [gate] = done.json["verdict"]["gates"]
    assert (gate["holds"], gate["run"], round(gate["bar"], 2)) == (False, good["run"], 2.85)
    now = project.status()
    assert (now["state"], now["draft"], now["gates_hold"]) == ("serving", good["draft"], True)


@pytest.mark.full  # beside the others of its kind: tests/faults/test_many_hosts.py
def test_a_failed_gate_stops_the_server_where_that_is_wished(project: Project) -> None:
    project.fake(bench=BENCH, gates={"accept_length": ">= 3.5"}, on_failure="stop")
    done = project.run("up", "profile=fake")
    assert (done.code, "below its gates" in done.err, project.status()["state"]) == (9, True, "stopped"), done.err


def test_what_needs_a_baseline_cannot_be_told_without_one(project: Project) -> None:
    project.fake(bench=BENCH, gates={"speedup": ">= 1.3"})
    done = project.run("up", "profile=fake")
    assert (done.code, "speedup could not be measured" in done.err) == (10, True), done.err
    assert "deploy bench --baseline restarts it without speculation" in done.err
    assert (project.status()["state"], judged(project, "speedup")["state"]) == ("serving", "unmeasured")


def test_what_cannot_be_told_now_takes_no_good_run_away(project: Project, tmp_path: Path) -> None:
    project.fake(bench=BENCH, gates={"accept_length": ">= 2.0"}, on_failure="rollback")
    assert project.run("up", "profile=fake").code == 0
    good = project.status()
    undecided = project.run("up", "profile=fake", "gates.speedup=>= 1.3")
    assert (undecided.code, project.status()["gates_hold"]) == (10, False), undecided.err
    other = tmp_path / "other"
    shutil.copytree(EXAMPLES / "draft", other)
    (other / "config.json").write_text((other / "config.json").read_text() + "\n")
    done = project.run("restart", "--ckpt", str(other), 'env.FAKE={"accept_length":1.0}')
    now = project.status()
    assert (done.code, now["state"], now["draft"]) == (9, "serving", good["draft"]), done.err
