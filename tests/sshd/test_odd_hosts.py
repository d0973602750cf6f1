"""Hosts that are told plainly: one without a python3, one whose shell speaks."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.facts.tools import PROGRAMS
from deploy.transport import connect
from tests.fleet import Keys, TestHost, loopback
from tests.project import Project

pytestmark = pytest.mark.sshd


@pytest.fixture
def bare(keys: Keys, tmp_path: Path) -> Iterator[TestHost]:
    """A host whose shell finds what the tool needs, but no python3."""
    found = tmp_path / "bin"
    found.mkdir()
    for name in ("sh", *PROGRAMS):
        (found / name).symlink_to(str(shutil.which(name)))
    with loopback(keys, shell="/bin/bash", bashrc=f"PATH={found}\n") as host:
        yield host


def project_of(folder: Path, **hosts: TestHost) -> Project:
    said = {
        name: {"address": host.address, "user": host.user, "key": host.key, "port": host.port}
        for name, host in hosts.items()
    }
    return Project(folder / "project", said)


def test_a_host_without_a_python_is_told_and_the_others_are_judged(
    bare: TestHost, sshd: TestHost, tmp_path: Path
) -> None:
    project = project_of(tmp_path, bare=bare, fine=sshd)
    words = "bare: there is no python3 that can be started; our programs need Python 3.8 or newer"

    project.profile("plain", engine="command", hosts="all", model="/etc", args={"argv": ["sleep", "{port}"]})

    checked = project.run("check", "--json")
    of_profile = project.run("check", "profile=plain", "--json")
    held = project.run("hold", "bare", "a reason for 1h")
    status = project.run("status", "--hosts", "bare")

    assert checked.code == 5, checked.err
    told = {(one["host"], one["check"]): one for one in json.loads(checked.out)}
    found = told["bare", "interpreter"]
    assert [check for host, check in told if host == "bare"] == ["interpreter"]
    assert (found["verdict"], found["what"]) == ("FAIL", words)
    assert "apt-get install python3" in found["remedy"]
    assert told["fine", "tools"]["verdict"] == "PASS"
    planned = {(one["host"], one["check"]): one for one in json.loads(of_profile.out)}
    assert of_profile.code == 5, of_profile.err
    assert planned["bare", "interpreter"] == found
    assert planned["fine", "tools"]["verdict"] == "PASS"
    assert told["fine", "ssh"]["verdict"] in ("PASS", "WARN")  # a loaded machine may be slow to answer
    assert held.code == 5, held.err
    assert words in held.err and words.removeprefix("bare: ") in status.err


def test_a_shell_that_speaks_is_told_with_its_words(keys: Keys, tmp_path: Path) -> None:
    with loopback(keys, shell="/bin/bash", bashrc="echo Welcome; echo complaint >&2\n") as host:
        project = project_of(tmp_path, noisy=host)
        done = project.run("check", "--json")
        there = connect(host)
        there.run(["true"])
        noise = there.noise
        there.close()

    told = [one for one in json.loads(done.out) if one["check"] == "ssh" and one["verdict"] != "PASS"]
    assert done.code == 0, done.out + done.err
    assert [(one["verdict"], one["evidence"]) for one in told if one["evidence"]][:2] == [
        ("WARN", "Welcome"),
        ("WARN", "complaint"),
    ]
    assert noise == {"stdout": b"Welcome\n", "stderr": b"complaint\n"}


def test_a_quiet_host_leaves_no_noise(sshd: TestHost) -> None:
    there = connect(sshd)
    assert there.run(["echo", "words"]).stdout == b"words\n"
    assert there.noise == {"stdout": b"", "stderr": b""}
    there.close()
