"""`deploy try`: candidates through the whole of a restart, one table, and the best left running, or what was."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.project import EXAMPLES, PATIENCE, Done, Project, until, with_run
from tests.run.test_rollback import another_draft

BENCH = {"prompts": ["count on", "once more"], "rounds": 2, "most_rounds": 2, "max_tokens": 16}


def fakes(*wrong: dict[str, Any]) -> str:
    """A word that sweeps over how the fake server misbehaves."""
    return f"env.FAKE={','.join(json.dumps({'lifetime': 120, **one}, separators=(',', ':')) for one in wrong)}"


def told(done: Done) -> list[tuple[int, str]]:
    return [(row["exit_code"], row["verdict"]) for row in done.json["candidates"]]


def previous(project: Project) -> str:
    link = Path(project.status()["folder"]).parent.parent / "previous"
    return link.readlink().name if link.is_symlink() else ""


def test_a_failing_candidate_stops_no_other_and_the_best_is_left(project: Project, tmp_path: Path) -> None:
    project.fake(bench=BENCH)
    assert project.run("up", "profile=fake").code == 0
    before = project.status()
    other = another_draft(tmp_path / "other")
    sweep = fakes({"tokens_per_second": 300}, {"die_at": "kv"}, {"tokens_per_second": 100}, {"accept_length": 1.0})
    done = project.run("try", str(other), sweep, "--json", timeout=300)
    assert done.code == 0, done.err
    assert told(done) == [(0, "holds"), (6, "died"), (0, "holds"), (9, "fails its gates")], done.err
    rows = done.json["candidates"]
    assert [round(row["accept_length"]["value"]) for row in rows if "accept_length" in row] == [3, 3, 1]
    assert rows[0]["tok_s"]["value"] > rows[2]["tok_s"]["value"] > 0
    assert ("not one drafted token" in rows[3]["why"], "rollback" in rows[1]["why"]) == (True, False)
    assert [row["ckpt"] for row in rows] == [str(other)] * 4
    now = project.status()
    assert (done.json["left"]["what"], done.json["left"]["of"]) == ("best", rows[0]["run"])
    assert (now["run"], now["state"], now["gates_hold"]) == (done.json["left"]["run"], "serving", True)
    assert now["draft"] != before["draft"]
    assert previous(project) == before["run"], "candidates are nothing to go back to"
    assert project.run("rollback").code == 0
    assert project.status()["draft"] == before["draft"]


def test_where_none_holds_what_ran_before_is_back(project: Project) -> None:
    project.fake(bench=BENCH, on_failure="rollback")
    assert project.run("up", "profile=fake").code == 0
    before = project.status()
    done = project.run("try", fakes({"accept_length": 1.0}, {"die_at": "kv"}), timeout=300)
    assert done.code == 9, done.err
    lines = done.out.splitlines()
    assert [len(lines), lines[0].split()[:2], lines[3].startswith("(what ran before)")] == [
        4,
        ["candidate", "verdict"],
        True,
    ]
    assert "on_failure" not in done.err, "what becomes of a failure is decided at the end"
    now = project.status()
    assert (now["state"], now["draft"], now["gates_hold"]) == ("serving", before["draft"], True)
    assert (with_run(before["run"]), previous(project)) == ([], "")
    again = project.run("up", "profile=fake", "--json")
    assert (again.code, again.json["verdict"]["mode"]) == (0, "verify"), again.err


@pytest.mark.full
@pytest.mark.parametrize("fails", [False, True], ids=["while it loads", "in a step that fails of itself"])
def test_after_a_ctrl_c_what_ran_before_is_back_and_what_was_tried_is_told(
    project: Project, tmp_path: Path, fails: bool
) -> None:
    project.fake(bench=BENCH)
    assert project.run("up", "profile=fake").code == 0
    before = project.status()
    (tmp_path / "here.at").write_text("GET /server_info" if fails else "phase graphs")
    held = {"breakpoints": str(tmp_path), "codes": {"/server_info": 500, "/get_server_info": 500} if fails else {}}
    with project.started("try", fakes({"tokens_per_second": 900}, held, {}), "--json") as process:
        until((tmp_path / "here.hit").exists)
        process.send_signal(signal.SIGINT)
        (tmp_path / "here.hit").unlink()
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    assert [row["verdict"] for row in json.loads(out)["candidates"]] == ["holds", "stopped"]
    now = project.status()
    assert (now["state"], now["draft"], now["gates_hold"]) == ("serving", before["draft"], True)
    assert with_run(before["run"]) == []
    assert (json.loads(out)["left"]["what"], previous(project)) == ("before", "")


@pytest.mark.full
@pytest.mark.parametrize("again", ["try", "rollback"])
def test_what_a_killed_client_left_is_only_tried(project: Project, again: str) -> None:
    project.fake(bench=BENCH, gates={"accept_length": ">= 2"})
    assert project.run("up", "profile=fake", "env.FAKE={}", "gates.accept_length=>= 4").code == 9
    before = project.status()
    assert before["gates_hold"] is False, "no good run: no rollback would find it by itself"
    with project.started("try", fakes({"phase_seconds": {"graphs": 60}}, {}), "gates.accept_length=>= 2") as process:
        until(lambda: project.status()["state"] == "loading")
        process.kill()
    words = [fakes({"accept_length": 1.0}, {"die_at": "kv"}), "--json"] if again == "try" else []
    done = project.run(again, *words)
    assert done.code == 9, done.err
    if again == "try":
        told = done.json["before"]
        assert (told["run"], round(told["accept_length"]["value"])) == (before["run"], 3), "its own, not what was left"
    now = project.status()
    assert (now["state"], now["why"], with_run(before["run"])) == ("serving", "", [])
    assert now["drift"] == before["drift"]


@pytest.mark.full
def test_the_last_is_what_the_last_one_left(project: Project, tmp_path: Path) -> None:
    project.fake(bench=BENCH)
    assert project.run("up", "profile=fake").code == 0
    broken = another_draft(tmp_path / "broken")
    (broken / "model.safetensors").write_bytes(b"")
    done = project.run(
        "try", fakes({"tokens_per_second": 900}), str(EXAMPLES / "draft"), str(broken), "--leave", "last", "--json"
    )
    assert told(done) == [(0, "holds"), (5, "refused")], done.err
    now = project.status()
    assert (done.json["left"]["run"], now["state"], now["why"]) == (now["run"], "serving", "")


@pytest.mark.full
@pytest.mark.parametrize(("leave", "state", "code"), [("last", "serving", 9), ("best", "stopped", 9)])
def test_where_nothing_ran_before(project: Project, leave: str, state: str, code: int) -> None:
    project.fake(bench=BENCH, fake={"accept_length": 1.0})
    done = project.run("try", "profile=fake", str(EXAMPLES / "draft"), "--leave", leave, "--json")
    assert (done.code, told(done)) == (code, [(9, "fails its gates")]), done.err
    assert project.status()["state"] == state


@pytest.mark.full
def test_what_already_serves_is_tried_as_it_is(project: Project) -> None:
    project.fake(bench=BENCH)
    assert project.run("up", "profile=fake").code == 0
    before = project.status()
    done = project.run("try", "speculative.num_steps=3,2", "--leave", "before", "--json", timeout=300)
    assert (done.code, told(done)) == (0, [(0, "holds"), (0, "holds")]), done.err
    assert "verified, not restarted" in done.err
    shown = [run["command"] for run in project.run("history", "--json").json]
    assert "try speculative.num_steps=2 profile=fake" in shown, "each record tells which candidate it was"
    assert (project.status()["draft"], previous(project)) == (before["draft"], "")


def test_what_is_wrong_is_told_before_anything_is_touched(project: Project, tmp_path: Path) -> None:
    project.fake(bench=BENCH)
    for words, said in (
        (["profile=fake"], "nothing to try"),
        (["profile=fake", str(EXAMPLES / "draft"), str(tmp_path / "missing")], "missing"),
        (["profile=fake", "speculative.num_stepz=3,4"], "did you mean speculative.num_steps?"),
        (["profile=fake", "speculative.num_steps=3,x"], "num_steps"),
    ):
        done = project.run("try", *words)
        assert (done.code, said in done.err) == (2, True), done.err
    assert not (project.folder / "runs").exists()
