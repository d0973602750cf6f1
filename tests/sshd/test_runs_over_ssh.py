"""Whole runs of the command line on hosts in namespaces over a real sshd, with a server that misbehaves on demand."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests import places
from tests.fleet import TestHost
from tests.places import Place
from tests.project import EXAMPLES, PATIENCE, Project, free_port, until

pytestmark = [pytest.mark.sshd, pytest.mark.namespace]

DRAFT = EXAMPLES / "draft"
SHA256 = 'cd -- "$1" && find . -type f -exec sha256sum {} + | sort'
Fleet = Callable[[int], list[TestHost]]


@pytest.fixture
def far(fleet: Fleet) -> Place:
    return places.over_ssh(*fleet(1))


@pytest.fixture
def project(far: Place, tmp_path: Path) -> Iterator[Project]:
    """A project with one host, over ssh."""
    with places.project_on(tmp_path / "project", far) as made:
        yield made


def another(folder: Path) -> Path:
    """A draft that loads as well as the healthy one, and is not the same."""
    shutil.copytree(DRAFT, folder)
    (folder / "config.json").write_text((DRAFT / "config.json").read_text() + "\n")
    return folder


def outcomes(project: Project, step: str) -> list[str]:
    """What a step came to in the last run, host by host."""
    return [event["text"] for event in project.events() if (event["kind"], event.get("step")) == ("step_ended", step)]


def sent(project: Project) -> bool:
    """Whether the last run sent config and weights, and read them back."""
    (outcome,) = outcomes(project, "push")
    return outcome.endswith("in 2 files sent, sha256 equal")


def alive(project: Project) -> Any:
    row = project.status()
    return row if row["state"] in ("loading", "serving") and row["pid"] else None


def launched(project: Project, client: subprocess.Popen[str]) -> Any:
    """The row of a server that a running client has started."""

    def look() -> Any:
        assert client.poll() is None, client.communicate()[1]
        return alive(project)

    return until(look, what="a server that loads")


def nothing_left(place: Place, row: Mapping[str, Any]) -> None:
    """No process, no port, and within a second or so no lock."""
    until(lambda: place.left(row) == places.NOTHING, what="nothing left")


def waits(project: Project) -> bool:
    try:
        return any(event.get("step") == "wait" for event in project.events())
    except (OSError, IndexError, json.JSONDecodeError):
        return False


# ---- the draft on the host


def test_a_draft_is_sent_once_and_lies_there_byte_for_byte(project: Project, far: Place) -> None:
    project.fake()
    done = project.run("up", "profile=fake")
    assert (done.code, sent(project)) == (0, True), done.err
    row = project.status()
    release = f"/home/op/.deploy/releases/{row['draft']}"
    assert far.inside("sh", "-c", SHA256, "sh", release) == places.here().inside("sh", "-c", SHA256, "sh", str(DRAFT))

    assert project.run("up", "profile=fake").code == 0
    assert outcomes(project, "push") == [], "what serves already needs no push"
    assert project.run("up", "profile=fake", "env.X=1").code == 0
    (outcome,) = outcomes(project, "push")
    assert outcome.startswith(f"release {row['draft']} is there")


def test_a_release_that_was_cut_short_on_the_host_is_noticed_and_sent_again(project: Project, far: Place) -> None:
    project.fake()
    assert project.run("up", "profile=fake").code == 0
    release = f"/home/op/.deploy/releases/{project.status()['draft']}"
    far.inside("truncate", "--size=-1", f"{release}/model.safetensors")
    done = project.run("up", "profile=fake", "env.X=1")
    assert (done.code, "is not what it was" in done.err) == (0, True), done.err
    assert sent(project)
    assert far.inside("sh", "-c", SHA256, "sh", release) == places.here().inside("sh", "-c", SHA256, "sh", str(DRAFT))


def test_a_checkpoint_that_lies_on_the_host_is_served_from_there(project: Project, far: Place) -> None:
    project.fake()
    assert project.run("up", "profile=fake").code == 0
    far.inside("sh", "-c", 'mkdir -p "$2" && cp "$1"/* "$2" && echo >>"$2/config.json"', "sh", str(DRAFT), "/srv/a b")
    try:
        done = project.run("restart", "--ckpt", f"{far.name}:/srv/a b")
        assert (done.code, sent(project)) == (0, True), done.err
        assert project.status()["draft_from"] == f"{far.name}:/srv/a b"
        done = project.run("restart", "--ckpt", f"{far.name}:/srv/none")
        assert (done.code, "/srv/none" in done.err, bool(alive(project))) == (2, True, True), done.err
    finally:
        far.inside("rm", "-rf", "/srv/a b")


def test_a_weights_file_is_taken_with_the_config_beside_it_and_nothing_else(project: Project, tmp_path: Path) -> None:
    step = another(tmp_path / "steps")
    (step / "model.safetensors").rename(step / "step-4000.safetensors")
    shutil.copy(DRAFT / "model.safetensors", step / "step-5000.safetensors")
    project.fake()
    assert project.run("up", "profile=fake").code == 0
    done = project.run("restart", "--ckpt", str(step / "step-4000.safetensors"), "-v")
    assert (done.code, sent(project)) == (0, True), done.err
    refused = project.run("restart", "--ckpt", str(step / "none.safetensors"))
    assert (refused.code, "does not exist" in refused.err, bool(alive(project))) == (2, True, True), refused.err


# ---- the client and its end


def test_ctrl_c_after_the_launch_detaches_and_up_takes_it_up_again(project: Project) -> None:
    project.fake(fake={"phase_seconds": {"weights": 5}})
    with project.started("up", "profile=fake") as client:
        loading = launched(project, client)
        until(lambda: waits(project), what="the step wait")
        client.send_signal(signal.SIGINT)
        _, err = client.communicate(timeout=PATIENCE)
    assert (client.returncode, "detached" in err) == (130, True), err
    done = project.run("up", "profile=fake", "--json")
    assert (done.code, done.json["verdict"]["mode"]) == (0, "verify"), done.err
    assert project.status()["pid"] == loading["pid"]


def test_down_leaves_no_process_no_port_and_no_lock(project: Project, far: Place) -> None:
    project.fake(fake={"children": 2, "orphans": 1, "stragglers": 1})
    assert project.run("up", "profile=fake").code == 0
    row = project.status()
    assert len(far.left(row)["pids"]) == 6, "launcher, server, two children, an orphan and a straggler"
    done = project.run("down")
    assert done.code == 0, done.err
    nothing_left(far, row)


def test_values_arrive_unchanged(project: Project, far: Place) -> None:
    wild = "a b'c\"d$HOME;e\nf`id`\\ \t*?[x] é漢 #!"
    project.fake(args={"x-note": wild, "x-dash": "-n"}, smoke={"ask": wild, "expect": "."}, waive=["flags"])
    path = project.folder / "profiles" / "fake.yaml"
    path.write_text(path.read_text().replace("env:\n", f"env:\n  WILD: {json.dumps(wild)}\n", 1))
    done = project.run("up", "profile=fake")
    assert done.code == 0, done.err
    server = max(far.left(project.status())["pids"])
    words = far.inside("cat", f"/proc/{server}/cmdline").split("\0")
    assert (words[words.index("--x-note") + 1], words[words.index("--x-dash") + 1]) == (wild, "-n")
    assert f"WILD={wild}" in far.inside("cat", f"/proc/{server}/environ").split("\0")


# ---- several hosts


def test_two_hosts_are_served_side_by_side(fleet: Fleet, tmp_path: Path) -> None:
    both = [places.over_ssh(host) for host in fleet(2)]
    with places.project_on(tmp_path / "project", *both) as project:
        project.fake(fake={"phase_seconds": {"weights": 3}})
        done = project.run("up", "profile=fake")
        assert (done.code, len(outcomes(project, "gate"))) == (0, 2), done.err
        begun, ready = (
            {event["host"]: event["at"] for event in project.events() if (event["kind"], event.get("step")) == wanted}
            for wanted in (("step_started", "launch"), ("step_ended", "wait"))
        )
        assert max(begun.values()) < min(ready.values()), "neither waits for the other"
        rows = project.run("status", "--json").json
        assert [(row["host"], row["state"]) for row in rows] == [(place.name, "serving") for place in both]
        done = project.run("up", "profile=fake", "--hosts", both[1].name, "env.X=1")
        assert (done.code, len(outcomes(project, "launch"))) == (0, 1), done.err
        done = project.run("down")
        assert done.code == 0, done.err
        for place, row in zip(both, rows, strict=True):
            nothing_left(place, row)


def test_a_host_that_cannot_be_reached_is_named_and_no_other_is_touched(fleet: Fleet, tmp_path: Path) -> None:
    here, gone = (places.over_ssh(host) for host in fleet(2))
    gone = places.over_ssh(fleet(2)[1], port=free_port())  # nobody listens there
    with places.project_on(tmp_path / "project", here, gone) as project:
        project.fake()
        done = project.run("up", "profile=fake")
        assert (done.code, gone.name in done.err) == (3, True), done.err
        assert here.inside("sh", "-c", "ls /home/op/.deploy 2>/dev/null || true") == ""
        done = project.run("up", "profile=fake", "--hosts", here.name)
        assert done.code == 0, done.err
        done = project.run("status", "--json")
        assert (done.code, [row["state"] for row in done.json]) == (3, ["serving", "unreachable"]), done.err
