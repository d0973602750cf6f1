"""The main job on the real SGLang, one server at a time: first a story on this machine, then a short one over sshd.

A start takes 25 to 50 s, so each case goes on from what the one before it left running; each also stands alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from deploy import environments
from tests import places
from tests.places import Place
from tests.project import EXAMPLES, Done, Project, free_port, until

pytestmark = [pytest.mark.engine, pytest.mark.sglang, pytest.mark.timeout(900)]

ENVIRONMENT = "sglang-cpu"
HEALTHY = EXAMPLES / "draft"


@pytest.fixture(scope="module")
def installed() -> None:
    """The environment; a machine without it skips, CI fails."""
    if environments.locate(ENVIRONMENT) is None:
        told = f"deploy engine install {ENVIRONMENT}"
        pytest.fail(told) if os.environ.get("CI") else pytest.skip(told)


class Deployment:
    """A project with the profile `tiny`: that of `local-sglang`, on one place and a free port."""

    def __init__(self, project: Project, place: Place) -> None:
        self.project, self.place = project, place
        project.profile("tiny", extends="local-sglang", hosts=place.name, port=free_port())
        # the environment lies in the user's own cache
        project.environ["XDG_CACHE_HOME"] = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")

    def run(self, *words: str) -> Done:
        return self.project.run(*words, "--json", timeout=600)

    def down_without_a_trace(self) -> None:
        row = self.project.status()
        done = self.run("down")
        assert done.code == 0, done.err
        lock = str(self.place.host.get("lock", self.project.folder / "lock"))
        until(lambda: self.place.left(row, lock) == places.NOTHING, 5, "no process, no port, no lock")


@pytest.fixture(scope="module")
def tiny(installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """The healthy pair, serving on this machine."""
    place = places.here()
    with places.project_on(tmp_path_factory.mktemp("sglang") / "project", place) as project:
        made = Deployment(project, place)
        done = made.run("up", "profile=tiny")
        assert (done.code, accept_length(done) > 3) == (0, True), done.err
        yield made


def accept_length(done: Done) -> float:
    return float(done.json["verdict"].get("accept_length", 0.0))


def test_a_second_up_verifies_and_does_not_restart(tiny: Deployment) -> None:
    before = tiny.project.status()
    done = tiny.run("up", "profile=tiny")
    assert (done.code, done.json["verdict"]["mode"]) == (0, "verify"), done.err
    assert accept_length(done) > 3
    assert tiny.project.status()["pid"] == before["pid"]


@dataclass(frozen=True)
class Case:
    """A restart: another draft or other words, and how it ends."""

    draft: str
    code: int
    said: str
    words: tuple[str, ...] = ()
    length: tuple[float, float] | None = None
    touched: bool = field(default=True)


WAIVED = ("waive=[ckpt]",)
STORY = {
    "without its d2t, it is refused before anything is touched": Case("no-d2t", 5, "d2t is missing", touched=False),
    "without its d2t, waived, not one token is accepted": Case(
        "no-d2t", 9, "not one drafted token is accepted", WAIVED, (1.0, 1.02)
    ),
    "what was waived once is not waived for the next draft": Case("wrong-fc", 5, "other shapes", touched=False),
    "a draft that does not load is explained": Case("wrong-fc", 6, "a tensor has another shape", WAIVED),
    "the healthy draft passes after all of that": Case("", 0, "done", (), (3.0, 4.0)),
    "the healthy draft by another algorithm is next to worthless": Case(
        "", 9, "drafted token is accepted", ("speculative.algorithm=EAGLE", *WAIVED), (1.0, 1.1)
    ),
    "without its head, waived, not one token is accepted": Case(
        "no-lm-head", 9, "drafted token is accepted", ("speculative.algorithm=EAGLE3", *WAIVED), (1.0, 1.05)
    ),
}
SELDOM = "without its head, waived, not one token is accepted"


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=name, marks=[pytest.mark.full] * (name == SELDOM)) for name, case in STORY.items()]
)
def test_a_restart_with_another_draft(tiny: Deployment, tmp_path: Path, case: Case) -> None:
    before = tiny.project.status()
    draft = places.broken(case.draft, tmp_path) if case.draft else HEALTHY
    done = tiny.run("restart", "--ckpt", str(draft), *case.words)
    assert (done.code, case.said in done.err) == (case.code, True), done.err
    after = tiny.project.status()
    assert (after["pid"] != before["pid"]) == case.touched
    assert after["state"] == ("dead" if case.code == 6 else "serving")
    if case.length:
        assert case.length[0] <= accept_length(done) <= case.length[1]


def test_it_answers_and_goes_without_a_trace(tiny: Deployment) -> None:
    done = tiny.run("smoke")
    assert (done.code, "Paris" in done.err) == (0, True), done.err
    told = tiny.run("ask", "capital of France?", "--max-tokens", "40").json
    assert ("Paris" in told["answer"], told["tokens"], told["accept_length"] > 3) == (True, 40, True)
    tiny.down_without_a_trace()


@pytest.mark.sshd
@pytest.mark.namespace
def test_the_same_over_ssh(installed: None, fleet, tmp_path: Path) -> None:
    place = places.over_ssh(*fleet(1))
    with places.project_on(tmp_path / "project", place) as project:
        made = Deployment(project, place)
        done = made.run("up", "profile=tiny")
        assert (done.code, accept_length(done) > 3) == (0, True), done.err
        done = made.run("smoke")
        assert (done.code, "Paris" in done.err) == (0, True), done.err
        made.down_without_a_trace()
