"""`deploy explain` of what the hosts have: a server that died, one that is silent, one that serves."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.project import Project, until

OWN = "failures: {taken-out: {line: odd words at the end, cause: 'it was taken out', remedy: ask why}}\n"


def log_of(project: Project) -> Path | None:
    return next((project.folder / "work").glob("*/fake/runs/*/server.log"), None)


def test_a_death_is_explained_again_from_the_host_and_by_the_users_own_lines(project: Project) -> None:
    project.fake(fake={"die_at": "weights", "die_error": "shape"})
    done = project.run("up", "profile=fake")
    assert (done.code, "a tensor has another shape" in done.err) == (6, True), done.err
    (told,) = project.run("explain", "--json").json
    assert (told["host"], told["engine"], told["failure"]["signature"]) == ("localhost", "sglang", "S35")
    log = log_of(project)
    assert log
    log.write_text(f"odd words at the end\n{log.read_text()}")
    (project.folder / "failures.yaml").write_text(OWN)
    done = project.run("explain", "profile=fake")
    assert (done.code, "taken-out  it was taken out" in done.out) == (0, True), done.out
    (project.folder / "failures.yaml").write_text("failures: {taken-out: {line: a}}\n")
    done = project.run("up", "profile=fake")
    assert (done.code, "failures.yaml:1: failures.taken-out.cause: is missing" in done.err) == (2, True), done.err


def test_one_that_lives_is_no_failure_until_it_is_silent(project: Project) -> None:
    project.fake(fake={"silent_at": "graphs"})
    with project.started("up", "profile=fake"):
        log = until(lambda: (found := log_of(project)) and "Capture" in found.read_text() and found, what="its silence")
        done = project.run("explain")
        assert (done.code, "no failure is told, and no end" in done.out) == (10, True), done.out
        os.utime(log, (time.time() - 600, time.time() - 600))
        (told,) = project.run("explain", "--json").json
    assert (told["ready"], told["failure"]["kind"]) == (False, "silence")
    assert "lives, its last line is 60" in told["state"]
    assert "Captur" in "".join(told["failure"]["evidence"])


def test_one_that_has_served_is_not_silent_where_its_log_no_longer_tells_of_its_start(project: Project) -> None:
    project.fake()
    assert project.run("up", "profile=fake").code == 0
    log = log_of(project)
    assert log
    log.write_text("[2026-11-30 12:00:00] GET /health\n")  # as after two rotations
    os.utime(log, (time.time() - 600, time.time() - 600))
    (told,) = project.run("explain", "--json").json
    assert (told["ready"], told["failure"]) == (True, None)
    log.with_name("server.log.1").write_text("[2026-11-30 12:00:00] ERROR: [Errno 98] address already in use\n")
    (told,) = project.run("explain", "--json").json
    assert told["failure"]["signature"] == "S11"
