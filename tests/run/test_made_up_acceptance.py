"""A server that makes its acceptance up: refused where the profile says so, and where only its environment does."""

from __future__ import annotations

import json

from tests.project import Project

VARIABLE = "SGLANG_SIMULATE_ACC_LEN"


def test_a_profile_that_makes_acceptance_up_is_refused_before_the_load(project: Project) -> None:
    project.fake()
    done = project.run("up", "profile=fake", f"env.{VARIABLE}=3")
    assert (done.code, f"{VARIABLE}=3" in done.err, "nothing was touched" in done.err) == (5, True, True), done.err
    assert project.status()["state"] == "nothing deployed"


def test_what_only_its_real_environment_says_is_seen_when_it_is_measured(project: Project) -> None:
    """As a login shell, a wrapper or the machine sets it: the launched server inherits it."""
    project.fake(gates={"accept_length": ">= 1.15"})
    done = project.run("up", "profile=fake", env={VARIABLE: "3"})
    assert (done.code, f"the server makes its acceptance up: {VARIABLE}=3" in done.err) == (10, True), done.err
    (path,) = project.folder.glob("work/*/fake/runs/*/bench.json")
    measured = json.loads(path.read_text())
    assert (measured["rungs"], measured["acceptance"], VARIABLE in measured["why"]) == ([], None, True)


def test_the_engines_own_off_is_off(project: Project) -> None:
    project.fake()
    assert project.run("up", "profile=fake", f"env.{VARIABLE}=-1").code == 0
