"""`deploy check` as people use it: of hosts alone or of a profile, one host or several, one that is away."""

from __future__ import annotations

from pathlib import Path

from tests.project import Project

HERE = {"transport": "local"}
AWAY = {"address": "127.0.0.1", "port": 1}  # nobody listens there


def test_of_a_host_alone_every_finding_is_told(tmp_path: Path):
    done = Project(tmp_path, {"here": HERE}).run("check")
    assert done.code == 0, done.out
    lines = done.out.splitlines()
    assert any(line.split()[:3] == ["here", "PASS", "tools"] for line in lines)
    assert lines[-1].startswith("1 host: ")


def test_of_several_hosts_what_passed_is_a_line_each_and_one_that_is_away_is_told_among_them(tmp_path: Path):
    project = Project(tmp_path, {"a": HERE, "away": AWAY, "b": HERE})
    done = project.run("check", "--hosts", "a,away,b")
    assert done.code == 3
    passed = {words[0]: words[2:] for line in done.out.splitlines() if (words := line.split())[1:2] == ["PASS"]}
    assert passed.keys() == {"a", "b"}
    assert {"disk,", "tools"} <= {*passed["b"]}
    assert any(line.split()[:3] == ["away", "UNKNOWN", "ssh"] for line in done.out.splitlines())
    rows = project.run("check", "--hosts", "a,away,b", "--json").json
    assert [row["check"] for row in rows if row["host"] == "away"] == ["ssh"]
    assert {row["host"] for row in rows if row["check"] == "tools"} == {"a", "b"}


def test_none_that_answers_is_an_error(tmp_path: Path):
    done = Project(tmp_path, {"away": AWAY}).run("check", "--hosts", "away")
    assert (done.code, done.out) == (3, "")
    assert "connection refused" in done.err


def test_a_word_that_is_no_profile_is_told(tmp_path: Path):
    done = Project(tmp_path, {"a": HERE}).run("check", "a")
    assert done.code == 2
    assert "no profile is named" in done.err
