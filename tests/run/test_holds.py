"""Holds and the audit by the command line: two people, several hosts, and clients that are killed and frozen."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from deploy.errors import Locked
from deploy.inventory import Host
from deploy.locking import hold
from deploy.operations import holding
from deploy.walk.session import Session
from tests import places
from tests.project import PATIENCE, Project, until

BOB = {"LOGNAME": "bob"}  # somebody else at this machine


@pytest.fixture
def pair(tmp_path: Path) -> Project:
    """A project of two hosts, each with its own lock, which are both this machine."""
    hosts = {name: {"transport": "local", "lock": str(tmp_path / f"lock-{name}")} for name in ("gpu1", "gpu2")}
    return Project(tmp_path / "project", hosts)


def audit(project: Project) -> list[dict[str, Any]]:
    found = [
        json.loads(line) for file in project.folder.glob("work/*/audit.jsonl") for line in file.read_text().splitlines()
    ]
    return sorted(found, key=lambda line: line["when"])


def ends(project: Project) -> list[tuple[str, int | None, str]]:
    """(what, exit code, words) of what has ended, as the host's audit has it."""
    ended = [line for line in audit(project) if line["event"] == "ended"]
    return [(line["what"], line["outcome"]["exit_code"], line["outcome"]["words"]) for line in ended]


# ---- two people --------------------------------------------------------------------------------------------------


def test_a_hold_stops_who_would_change_something_and_nobody_who_looks(project: Project) -> None:
    project.fake()
    assert project.run("up", "profile=fake").code == 0
    done = project.run("hold", "localhost", "bench for 2h", env=BOB)
    assert (done.code, done.out.startswith("localhost: held by bob@")) == (0, True), done.err

    before = project.status()["pid"]
    for words in (
        ("up", "profile=fake", "env.X=1"),
        ("restart",),
        ("down", "-y"),
        ("hold", "all", "x for 1h"),
    ):
        done = project.run(*words)
        assert (done.code, "held by bob@" in done.err) == (4, True), (words, done.err)
        assert "bench, until" in done.err and "(in 2 h)" in done.err and "deploy release localhost" in done.err
    assert (project.status()["pid"], project.status()["state"]) == (before, "serving")

    for words in (("plan", "profile=fake"), ("check", "profile=fake"), ("logs", "-n", "1"), ("smoke",)):
        done = project.run(*words)
        assert done.code == 0, (words, done.err)
    assert project.status()["hold"]["reason"] == "bench"
    assert "bench, until" in project.run("status").out

    done = project.run("up", "profile=fake", "env.X=1", env=BOB)
    assert (done.code, project.status()["pid"] != before) == (0, True), done.err
    assert project.status()["hold"]["reason"] == "bench"


def test_who_releases_the_hold_of_another_says_so_and_it_is_noted(project: Project) -> None:
    assert project.run("hold", "localhost", "bench for 2h", env=BOB).code == 0
    done = project.run("release", "localhost")
    assert (done.code, "this is the hold of bob@" in done.err) == (2, True), done.err
    assert project.run("hold", "localhost", "mine for 1h").code == 4
    done = project.run("release", "localhost", "--force")
    assert (done.code, done.out.startswith("localhost: released, it was held by bob@")) == (0, True), done.err
    assert "released bob@" in ends(project)[-1][2]
    done = project.run("release", "localhost", "--json")
    assert (done.code, done.json) == (0, [{"host": "localhost", "released": None}])


@pytest.mark.parametrize(("answer", "code"), [(b"y\n", 0), (b"n\n", 130)], ids=["yes", "no"])
def test_somebody_at_a_terminal_is_asked_with_the_owner_s_name(project: Project, answer: bytes, code: int) -> None:
    assert project.run("hold", "localhost", "bench for 2h", env=BOB).code == 0
    primary, secondary = pty.openpty()
    with subprocess.Popen(
        project.argv("release", "localhost"), cwd=project.folder, env=project.environ, stdin=secondary,
        stderr=secondary, stdout=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        os.close(secondary)
        told = b""
        while b"End the hold of bob@" not in told or not told.rstrip().endswith(b":"):
            assert select.select([primary], [], [], 30)[0], told
            told += os.read(primary, 4096)
        os.write(primary, answer)
        process.wait(PATIENCE)
    os.close(primary)
    assert process.returncode == code
    assert (project.run("hold", "localhost", "mine for 1h").code == 4) == (code != 0)


def test_one_s_own_hold_is_released_without_a_word(project: Project) -> None:
    assert project.run("hold", "localhost", "bench", "for", "2h").code == 0
    assert project.run("release", "localhost").code == 0
    assert project.run("hold", "localhost", "mine for 1h", env=BOB).code == 0


def test_what_is_no_hold_is_exit_2_before_any_host_is_reached(project: Project) -> None:
    for words in (("bench",), ("bench until 2026-01-01 9:00",), ("bench for 9 days",), ()):
        done = project.run("hold", "localhost", *words)
        assert (done.code, "-> " in done.err, list(project.folder.glob("lock"))) == (2, True, []), done.err


# ---- several hosts -----------------------------------------------------------------------------------------------


def test_all_hosts_are_held_or_none(pair: Project) -> None:
    assert pair.run("hold", "gpu2", "bench for 2h", env=BOB).code == 0
    done = pair.run("hold", "all", "reboot for 1h")
    assert (done.code, "gpu2 is held by bob@" in done.err) == (4, True), done.err
    assert [row.get("hold", {}).get("reason") for row in pair.run("status", "--hosts", "all", "--json").json] == [
        None,
        "bench",
    ]
    done = pair.run("hold", "all", "reboot for 1h", "--json", env=BOB)
    assert [(row["host"], row["reason"], row["left"]) for row in done.json] == [
        ("gpu1", "reboot", 3600),
        ("gpu2", "reboot", 3600),
    ]


@pytest.mark.parametrize("before", [None, "older"])
def test_where_one_cannot_be_held_the_others_get_back_what_stood_there(tmp_path: Path, before: str | None) -> None:
    hosts = [
        Host.model_validate({"name": name, "transport": "local", "lock": str(tmp_path / name), "work": str(tmp_path)})
        for name in ("gpu1", "gpu2")
    ]
    if before:
        with Session("hold") as session:
            session.open(hosts[:1], locked=True)
            holding.hold(session, before, 600)
    with Session("hold") as session:
        session.open(hosts, locked=True)
        lease = session.remotes["gpu2"].lease
        assert lease
        lease._process.close()  # its host is lost
        with pytest.raises(Locked, match="no host is held"):
            holding.hold(session, "bench", 600)
    with Session("look") as session:
        session.open(hosts, locked=False)
        held = [machine.hold and machine.hold.reason for machine in session.machines.values()]
    assert held == [before, None]


# ---- the audit ---------------------------------------------------------------------------------------------------


def test_each_command_that_changes_something_is_told_with_its_end(project: Project) -> None:
    project.fake()
    assert project.run("up", "profile=fake", "env.HF_TOKEN=s3cr3t", "env.X=1").code == 0
    assert project.run("smoke").code == 0
    assert project.run("up", "profile=fake", "gates.accept_length=>= 99", "-q").code == 9
    assert project.run("up", "profile=fake", "secrets=[NONE]").code == 2
    assert project.run("down", "-y").code == 0
    told = ends(project)
    assert [(what, code) for what, code, _ in told] == [
        ("deploy up profile=fake 'env.HF_TOKEN=***' env.X=1", 0),
        ("deploy up profile=fake 'gates.accept_length=>= 99' -q", 9),
        ("deploy up profile=fake 'secrets=[NONE]'", 2),
        ("deploy down -y", 0),
    ]
    assert told[2][2] == "the secret NONE is not in the environment"
    assert told[0][2].startswith("done, accept length") and "below its gates" in told[1][2]
    assert all(line["who"] == "@".join(hold.me()) and line["from"] for line in audit(project))
    lock = (project.folder / "lock").read_text()
    assert lock == "" and not [
        file for file in project.folder.glob("work/*/audit.jsonl") if "s3cr3t" in file.read_text()
    ]
    shown = project.run("history", "--hosts", "all")
    assert [line.split("deploy ")[1].split()[0] for line in shown.out.splitlines()[1:]] == ["up", "up", "up", "down"]
    assert project.run("history", "--hosts", "all", "--json", "--limit", "1").json[0]["event"] == "ended"


def test_a_secret_is_not_in_the_lock_s_file_which_all_may_read(project: Project) -> None:
    project.fake(fake={"phase_seconds": {"weights": 20}})
    with project.started("up", "profile=fake", "env.HF_TOKEN=s3cr3t"):
        lock = project.folder / "lock"
        until(lambda: lock.exists() and "profile=fake" in lock.read_text())
        assert "s3cr3t" not in lock.read_text()


def test_a_client_that_is_killed_and_one_that_is_frozen_are_told_apart(tmp_path: Path) -> None:
    with places.project_on(tmp_path / "project", places.here(), lease=2.0) as project:
        project.fake(fake={"phase_seconds": {"weights": 60}})
        with project.started("up", "profile=fake") as client:
            until(lambda: list(project.folder.glob("work/*/fake/runs/*/pid")), what="a server that loads")
            client.kill()
            until(lambda: ends(project))
        assert ends(project)[-1] == ("deploy up profile=fake", None, "the client died")
        with project.started("up", "profile=fake") as client:
            until(lambda: sum(line["event"] == "began" for line in audit(project)) == 2)
            client.send_signal(signal.SIGSTOP)
            until(lambda: len(ends(project)) == 2)
        assert ends(project)[-1][1:] == (None, "the client was silent for 2 s")
        assert "not ended" not in project.run("history", "--hosts", "all").out


def test_a_work_folder_that_cannot_be_written_for_the_audit_is_a_note(project: Project) -> None:
    project.fake()
    (project.folder / "work" / Path("/etc/machine-id").read_text().strip() / "audit.jsonl").mkdir(parents=True)
    done = project.run("up", "profile=fake")
    assert (done.code, "audit.jsonl cannot be written: Is a directory" in done.err) == (0, True), done.err


def test_a_release_tells_as_well_that_the_audit_cannot_be_written(project: Project) -> None:
    assert project.run("hold", "localhost", "bench for 2h").code == 0
    (audit_file,) = project.folder.glob("work/*/audit.jsonl")
    audit_file.unlink()
    audit_file.mkdir()
    done = project.run("release", "localhost")
    assert (done.code, "audit.jsonl cannot be written: Is a directory" in done.err) == (0, True), done.err
    done = project.run("history", "--hosts", "all")
    assert (done.code != 0, "Is a directory" in done.err, "nothing was changed" in done.err) == (True, True, False)


def test_a_lock_that_cannot_be_read_is_not_told_as_free(project: Project) -> None:
    (project.folder / "lock").symlink_to("/etc/hostname")
    done = project.run("release", "localhost")
    assert (done.code, "nobody held it" in done.out) == (4, False)
    assert f"{project.folder}/lock cannot be read: it is a symbolic link" in done.err
    assert "cannot be read" in project.run("release", "localhost", "--json").json[0]["error"]
    assert "its lock cannot be read" in project.run("status", "--hosts", "localhost").out


def test_a_line_of_the_audit_cannot_name_another_host(project: Project) -> None:
    assert project.run("hold", "localhost", "bench for 2h").code == 0
    (audit_file,) = project.folder.glob("work/*/audit.jsonl")
    with audit_file.open("a") as file:
        file.write('{"host": "gpu9", "id": [1], "when": "9", "what": NaN}\n')
    (line,) = project.run("history", "--hosts", "all", "--json", "--limit", "1").json
    assert (line["host"], line["what"]) == ("localhost", None)
    assert "gpu9" not in project.run("history", "--hosts", "all").out


def test_history_says_what_it_does_not_take_together(project: Project) -> None:
    done = project.run("history", "last", "--hosts", "all")
    assert (done.code, "RUN or --hosts" in done.err) == (2, True), done.err
    done = project.run("history", "--hosts", "all")
    assert (done.code, "nothing was changed on these hosts so far" in done.err) == (0, True), done.err
