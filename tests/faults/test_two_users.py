"""Two people with accounts of their own on one host: one lock, two work folders, and nobody in anybody's way."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import places
from tests.fleet import TestHost
from tests.project import EXAMPLES, FAKE, PATIENCE, Project, until

pytestmark = [pytest.mark.sshd, pytest.mark.namespace]

Two = tuple[Project, Project]
COMMON = "/srv/common"  # the checkout may lie in a home that others cannot look into
THEIRS: dict[str, Any] = {
    "engine": {"name": "sglang", "python": f"{COMMON}/fake_server.py"},
    "model": {"path": f"{COMMON}/target", "name": "tiny"},
}


@pytest.fixture
def host(fleet: Callable[[int], list[TestHost]]) -> Iterator[TestHost]:
    """A host that has the user `other` beside root."""
    (made,) = fleet(1)
    made.inside("useradd", "--create-home", "--password", "*", "--shell", "/bin/sh", "other")
    made.inside("mkdir", "-p", COMMON)
    made.inside("cp", "-r", str(FAKE), str(FAKE.parent / "fake_sglang"), str(EXAMPLES / "target"), COMMON)
    made.inside("chmod", "-R", "a+rX", COMMON)
    yield made
    made.inside("userdel", "--remove", "--force", "other")
    made.inside("rm", "-r", COMMON)


@pytest.fixture
def two(host: TestHost, tmp_path: Path) -> Iterator[Two]:
    """The projects of root and of the other user on the same host."""
    root, other = places.over_ssh(host), places.over_ssh(host, user="other")
    with places.project_on(tmp_path / "other", other) as others, places.project_on(tmp_path / "root", root) as roots:
        yield roots, others


def loads(project: Project, client: subprocess.Popen[str]) -> bool:
    assert client.poll() is None, client.communicate()[1]
    return bool(project.status()["state"] == "loading")


def test_the_lock_of_one_holds_for_the_other_and_is_left_to_them(two: Two) -> None:
    roots, others = two
    roots.fake("fake", fake={"phase_seconds": {"weights": 4}})
    others.fake("theirs", **THEIRS)
    with roots.started("up", "profile=fake") as client:
        until(lambda: loads(roots, client), what="a server that loads")
        done = others.run("up", "profile=theirs")
        assert (done.code, f"pid {client.pid}" in done.err, "up profile=fake" in done.err) == (4, True, True), done.err
        assert client.wait(PATIENCE) == 0
    done = others.run("up", "profile=theirs")
    assert (done.code, others.status()["state"]) == (0, "serving"), done.err
    done = roots.run("up", "profile=fake", "env.X=1")
    assert done.code == 0, done.err


def test_the_lock_of_a_client_that_died_is_free_for_the_other(two: Two) -> None:
    roots, others = two
    roots.fake("fake", fake={"phase_seconds": {"weights": 20}})
    others.fake("theirs", **THEIRS)
    with roots.started("up", "profile=fake") as client:
        until(lambda: loads(roots, client), what="a server that loads")
        client.kill()
        client.wait()
        until(lambda: others.run("up", "profile=theirs").code == 0, what="the lock to be free")
    assert (roots.status()["state"], others.status()["state"]) == ("loading", "serving"), "nobody touched the other's"


def test_a_server_of_the_other_is_foreign_and_left_alone(two: Two) -> None:
    roots, others = two
    port = roots.fake("fake")
    assert roots.run("up", "profile=fake").code == 0
    before = roots.status()
    assert others.status()["state"] == "nothing deployed"
    others.fake("fake", port=port, **THEIRS)
    for words in ((), ("evict=yes",)):
        done = others.run("up", "profile=fake", *words)
        assert (done.code, f"port {port} is held by" in done.err, "user id 0" in done.err) == (5, True, True), done.err
        assert ("root can end" in done.err, "take it with" in done.err, "waive=" in done.err) == (True, False, False)
    assert (roots.status()["state"], roots.status()["pid"]) == ("serving", before["pid"])


def test_nobody_reads_the_other_s_run(two: Two, host: TestHost) -> None:
    roots, _ = two
    roots.fake("fake", secrets=["TOKEN"])
    roots.environ["TOKEN"] = "s3cr3t"
    assert roots.run("up", "profile=fake").code == 0
    folder = roots.status()["folder"]
    assert "s3cr3t" in host.inside("cat", f"{folder}/env")
    cat = 'cd -- "$1" && for file in *; do runuser -u other -- cat "$1/$file" 2>&1 || true; done'
    told = host.inside("sh", "-c", cat, "sh", folder).splitlines()
    assert len(told) >= 6 and all("Permission denied" in line for line in told)


def test_a_hold_of_one_is_told_to_the_other_who_may_end_it_and_is_noted(two: Two) -> None:
    roots, others = two
    others.environ["LOGNAME"] = "bob"  # who sits at this machine, too
    assert roots.run("hold", "all", "bench for 2h").code == 0
    began = time.monotonic()
    done = others.run("hold", "all", "mine for 1h")
    assert (done.code, "is held by root@" in done.err, "bench, until" in done.err) == (4, True, True), done.err
    assert "(from 10." in done.err and time.monotonic() - began < 60
    assert others.status()["hold"]["by"].startswith("root@")
    assert others.run("release", "all").code == 2
    assert others.run("release", "all", "--force").code == 0
    assert others.run("hold", "all", "mine for 1h").code == 0
    lines = others.run("history", "--hosts", "all", "--json").json
    assert [line["event"] for line in lines] == ["began", "released", "ended", "began", "held", "ended"]
    assert {(line["who"].split("@")[0], line["as"], line["from"].split(".")[0]) for line in lines} == {
        ("bob", "other", "10")
    }
    assert (lines[1]["whose"].split("@")[0], lines[1]["reason"]) == ("root", "bench")
    (line,) = [line for line in roots.run("history", "--hosts", "all").out.splitlines() if "deploy hold" in line]
    assert "root@" in line and "bench" in line
