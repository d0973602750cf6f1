"""One work folder for all hosts, as an NFS is: each keeps its own runs in it, and they share the releases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import places
from tests.faults.case import BREAKPOINTS
from tests.faults.host import look
from tests.faults.moments import MOMENTS, Breakpoints
from tests.fleet import TestHost
from tests.places import Place
from tests.project import PATIENCE, Project, until

pytestmark = [pytest.mark.sshd, pytest.mark.namespace]

WORK = "/srv/shared/work"
UP = ("up", "profile=fake")


@pytest.fixture
def hosts(fleet: Callable[[int], list[TestHost]]) -> list[TestHost]:
    return fleet(2)


@pytest.fixture
def both(hosts: list[TestHost]) -> list[Place]:
    return [places.over_ssh(host, work=WORK) for host in hosts]


@pytest.fixture
def project(both: list[Place], tmp_path: Path) -> Iterator[Project]:
    """A project on two hosts with one work folder."""
    with places.project_on(tmp_path / "project", *both, swept=[WORK]) as made:
        made.environ["HOME"] = str(tmp_path)  # what others run on this machine is no part of it
        made.fake(fake={"breakpoints": BREAKPOINTS})
        yield made


def serving(project: Project) -> dict[str, str]:
    """The hosts that serve, and the folders of their runs."""
    return {row["host"]: row["folder"] for row in project.run("status", "--json").json if row["state"] == "serving"}


def is_clean(both: list[Place]) -> None:
    """One release, whole, and nothing that was only on its way there."""
    seen = look(both[0])
    assert (len(seen.releases), seen.stale) == (1, [])


def test_each_host_has_its_own_runs_and_ends_its_own_server(project: Project, both: list[Place]) -> None:
    done = project.run(*UP)
    assert done.code == 0, done.err
    folders = serving(project)
    assert len(set(folders.values())) == 2
    assert [place.inside("cat", "/etc/machine-id").strip() in folders[place.name] for place in both] == [True, True]
    is_clean(both)
    done = project.run("down", "--hosts", both[0].name)
    assert (done.code, list(serving(project))) == (0, [both[1].name]), done.err
    assert project.run("down", "profile=fake").code == 0


@pytest.mark.parametrize("moment", ["push", "push, reading back"])
def test_two_that_bring_the_same_release_do_not_disturb_each_other(
    project: Project, both: list[Place], hosts: list[TestHost], moment: str
) -> None:
    breakpoints, (one, two) = Breakpoints(hosts[0], BREAKPOINTS), both
    breakpoints.set(MOMENTS[moment])
    with project.started(*UP, "--hosts", one.name) as client:
        try:
            breakpoints.reach(MOMENTS[moment], client)
            done = project.run(*UP, "--hosts", two.name)
            assert done.code == 0, done.err
        finally:
            breakpoints.release()
        _, err = client.communicate(timeout=PATIENCE)
    assert (client.returncode, len(serving(project))) == (0, 2), err
    is_clean(both)
    assert project.run("down", "profile=fake").code == 0


def test_what_a_dead_client_left_of_one_host_is_not_cleared_away_by_another(
    project: Project, both: list[Place], hosts: list[TestHost]
) -> None:
    breakpoints, (one, two) = Breakpoints(hosts[0], BREAKPOINTS), both
    breakpoints.set(MOMENTS["push, reading back"])
    with project.started(*UP, "--hosts", one.name) as client:
        breakpoints.reach(MOMENTS["push, reading back"], client)
        client.kill()
        client.wait()
        breakpoints.release()
    until(lambda: not look(one).held, what="the lock to be free")
    assert project.run(*UP, "--hosts", two.name).code == 0
    assert [path for path in look(one).stale if one.inside("cat", "/etc/machine-id").strip() in path]
    done = project.run(*UP)
    assert (done.code, len(serving(project))) == (0, 2), done.err
    is_clean(both)
    assert project.run("down", "profile=fake").code == 0


@pytest.mark.parametrize("script", ["echo >/etc/machine-id", "rm /etc/machine-id"], ids=["empty", "missing"])
def test_without_a_machine_id_the_host_name_tells_them_apart(project: Project, both: list[Place], script: str) -> None:
    ids = [place.inside("cat", "/etc/machine-id") for place in both]
    for place in both:
        place.inside("sh", "-c", script)
    try:
        done = project.run(*UP)
        assert done.code == 0, done.err
        assert [folder.split("/")[4] for folder in serving(project).values()] == [place.name for place in both]
        assert project.run("down").code == 0
    finally:
        for place, known in zip(both, ids, strict=True):
            place.inside("sh", "-c", 'printf %s "$1" >/etc/machine-id', "sh", known)
