"""What a command does when its streams are closed, full or left, and what a program that asked for JSON gets."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.project import PATIENCE, Project, ended, free_port, until


def through_a_shell(project: Project, words: str, streams: str) -> tuple[int, str]:
    """The exit code of `deploy` under these redirections, and what came to stderr."""
    script = f'"$0" -m deploy {words} {streams}; exit "${{PIPESTATUS[0]}}"'
    done = subprocess.run(
        ["bash", "-c", script, project.argv()[0]], cwd=project.folder, env=project.environ, check=False,
        timeout=PATIENCE, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    return done.returncode, done.stderr


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A project whose server serves, and is only verified by each `up`."""
    made = Project(tmp_path_factory.mktemp("served") / "project")
    made.fake()
    assert made.run("up", "profile=fake").code == 0
    yield made
    ended(made.folder)


RUNS = ("up profile=fake", "up profile=fake --jsonl", "up profile=fake --json", "up profile=fake -vv")
DATA = ("status", "plan profile=fake", "history", "history --json", "logs", "profile list")
REDIRECTIONS = (
    "2>&-",
    ">&-",
    ">&- 2>&-",
    "<&- >&- 2>&-",
    ">/dev/full",
    "2>/dev/full",
    ">/dev/full 2>/dev/full",
    "| true",
)


@pytest.mark.parametrize("streams", REDIRECTIONS)
@pytest.mark.parametrize("words", RUNS)
def test_a_run_goes_on_and_its_exit_code_is_its_own(served: Project, words: str, streams: str) -> None:
    code, err = through_a_shell(served, words, streams)
    assert (code, "Traceback" in err, "Exception" in err) == (0, False, False), err


@pytest.mark.parametrize("streams", REDIRECTIONS)
@pytest.mark.parametrize("words", DATA)
def test_output_that_nobody_gets_is_no_traceback(served: Project, words: str, streams: str) -> None:
    code, err = through_a_shell(served, words, streams)
    assert ("Traceback" in err, "Exception" in err) == (False, False), err
    assert code == (1 if "full" in streams.partition("2>")[0] else code)
    assert code in (0, 1)


def test_a_full_disk_is_told(served: Project) -> None:
    assert through_a_shell(served, "status", ">/dev/full") == (1, "stdout: No space left on device\n")


def test_a_closed_stream_is_not_taken_by_a_file(served: Project) -> None:
    """Else what a child or a library writes to stderr would end up in the record."""
    assert through_a_shell(served, "up profile=fake", "2>&-")[0] == 0
    assert all(isinstance(event, dict) for event in served.events())


# ---- one JSON document -------------------------------------------------------------------------------------------

ERRORS: list[tuple[list[str], int, str, str]] = [
    (["up"], 2, "ConfigError", "no profile is named"),
    (["up", "profile=nothing"], 2, "ConfigError", "nothing"),
    (["up", "profile=fake", "prt=1"], 2, "ConfigError", "prt"),
    (["status", "--hosts", "gpu9"], 2, "ConfigError", "gpu9"),
    (["status", "--hosts", ""], 2, "ConfigError", "--hosts names no host"),
    (["status", "--no-such-option"], 2, "ConfigError", "--no-such-option"),
    (["nothing"], 2, "ConfigError", "there is no command"),
    (["plan", "profile=nothing"], 2, "ConfigError", "nothing"),
    (["logs"], 2, "ConfigError", "a log is no JSON"),
    (["history", "none"], 2, "ConfigError", "there are no runs"),
    (["history", "none", "--replay"], 2, "ConfigError", "a replay is no document"),
    (["profile", "show", "nothing"], 2, "ConfigError", "nothing"),
    (["smoke"], 2, "ConfigError", "nothing is deployed"),
    (["down", "profile=nothing"], 2, "ConfigError", "no host has a deployment"),
    (["restart"], 2, "ConfigError", "nothing is deployed"),
    (["rollback"], 2, "ConfigError", "nothing is deployed"),
    (["tunnel"], 2, "ConfigError", "nothing is deployed"),
]


@pytest.mark.parametrize(("words", "code", "error", "what"), ERRORS, ids=[" ".join(case[0]) for case in ERRORS])
def test_an_error_is_one_json_document_for_who_asked_for_json(
    project: Project, words: list[str], code: int, error: str, what: str
) -> None:
    project.fake()
    done = project.run(*words, "--json")
    assert (done.code, done.json["exit_code"], done.json["error"]["error"]) == (code, code, error), done.err
    assert set(done.json["error"]) == {"what", "evidence", "remedy", "error"}
    assert what in done.json["error"]["what"]
    assert "error" in done.err.lower()


def test_to_end_what_does_not_run_is_done_already(project: Project) -> None:
    done = project.run("down", "--json")
    assert (done.code, done.json["failures"], "nothing runs" in done.err) == (0, [], True), done.err


def test_a_host_that_is_silent_is_one_json_document(tmp_path: Path) -> None:
    project = Project(tmp_path / "project", {"gpu1": {"address": "127.0.0.1", "port": free_port()}})
    project.fake(hosts="gpu1")
    done = project.run("up", "profile=fake", "--json", env={"DEPLOY_SSH_CONFIG": "/dev/null"})
    assert (done.code, done.json["error"]["error"]) == (3, "Unreachable"), done.err


def test_a_run_that_fails_is_one_json_document(project: Project) -> None:
    project.fake(fake={"answer": "blue"})
    done = project.run("up", "profile=fake", "--json")
    assert (done.code, done.json["exit_code"], done.json["failures"][0]["step"]) == (8, 8, "smoke")


@pytest.mark.parametrize("words", ["status", "check profile=fake", "plan profile=fake", "logs", "history", "tunnel"])
def test_what_has_no_events_refuses_to_tell_them(project: Project, words: str) -> None:
    project.fake()
    done = project.run(*words.split(), "--jsonl")
    assert (done.code, done.out) == (2, ""), done.err


def test_a_word_that_only_looks_like_json_asks_for_none(project: Project) -> None:
    done = project.run("up", "--", "--json")
    assert (done.code, done.out) == (2, "")


# ---- logs --------------------------------------------------------------------------------------------------------


def test_a_missing_log_is_told(project: Project) -> None:
    project.fake()
    assert project.run("up", "profile=fake").code == 0
    (Path(project.status()["folder"]) / "server.log").unlink()
    for words in (["logs"], ["logs", "-f"]):
        done = project.run(*words, timeout=PATIENCE)
        assert (done.code, "cannot be read" in done.err, "server.log" in done.err) == (1, True, True), done.err


def test_the_log_of_a_dead_server_is_not_followed(project: Project) -> None:
    project.fake(fake={"die_at": "weights"})
    assert project.run("up", "profile=fake").code == 6
    done = project.run("logs", "-f", "-n", "5", timeout=PATIENCE)
    assert (done.code, "does not run: " in done.err, len(done.out.splitlines())) == (0, True, 5), done.err


def test_following_a_log_goes_on_with_the_next_run(project: Project, tmp_path: Path) -> None:
    project.fake()
    assert project.run("up", "profile=fake").code == 0
    log = tmp_path / "followed"
    with log.open("w") as out, subprocess.Popen(
        project.argv("logs", "-f"), cwd=project.folder, env=project.environ, stdout=out, stdin=subprocess.DEVNULL
    ) as follower:  # fmt: skip
        try:
            until(lambda: log.read_text().count("fired up") == 1, what="the first run's log")
            assert project.run("restart").code == 0
            until(lambda: log.read_text().count("fired up") == 2, what="the second run's log")
        finally:
            follower.kill()


def test_following_ends_when_nobody_reads(project: Project) -> None:
    project.fake()
    assert project.run("up", "profile=fake").code == 0
    with subprocess.Popen(
        project.argv("logs", "-f"), cwd=project.folder, env=project.environ, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as follower:  # fmt: skip
        assert follower.stdout
        follower.stdout.read(10)
        follower.stdout.close()
        assert project.run("smoke").code == 0  # something for the log
        assert follower.wait(timeout=PATIENCE) == 1
        assert follower.stderr
        assert follower.stderr.read() == b""


def test_who_follows_and_is_killed_leaves_no_reader_on_the_host(project: Project) -> None:
    project.fake()
    assert project.run("up", "profile=fake").code == 0
    folder = project.status()["folder"].encode()
    with project.started("logs", "-f") as follower:
        until(lambda: _reading(folder), what="the reader on the host")
        follower.kill()
        until(lambda: not _reading(folder), what="the end of the reader, though the log is silent")


def _reading(folder: bytes) -> bool:
    """Whether a program that prints this run's log lives."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if folder in words and any(word.startswith(b'"""Print the end of a run') for word in words):
            return True
    return False


def test_json_lines_are_json(project: Project) -> None:
    project.fake()
    done = project.run("up", "profile=fake", "--jsonl")
    assert [json.loads(line)["kind"] for line in done.out.splitlines()][-1] == "run_ended"
