"""The main job on the real SGLang, one server at a time: first a story on this machine, then a short one over sshd.

A start takes 25 to 50 s, so each case goes on from what the one before it left running; each also stands alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests import places
from tests.installed import Deployment, accept_length, deployment, needs, proven
from tests.project import EXAMPLES

pytestmark = [pytest.mark.engine, pytest.mark.sglang, pytest.mark.timeout(900)]

ENVIRONMENT, PROFILE = "sglang-cpu", "local-sglang"
HEALTHY = EXAMPLES / "draft"
NONE = "not one drafted token is accepted"
WAIVED = ("waive=[ckpt]",)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """The healthy pair, serving on this machine."""
    needs(ENVIRONMENT)
    with deployment(tmp_path_factory.mktemp("sglang") / "project", places.here(), PROFILE) as made:
        made.up()
        yield made


def test_a_second_up_verifies_and_does_not_restart(tiny: Deployment) -> None:
    before = tiny.project.status()
    done = tiny.run("up", "profile=tiny")
    assert (done.code, done.json["verdict"]["mode"]) == (0, "verify"), done.err
    assert accept_length(done) > 3
    witnesses = {one.source: one.agrees for one in tiny.measured().witnesses}
    assert (witnesses.get("the log") is not False, witnesses["/metrics"]) == (True, True)
    assert tiny.project.status()["pid"] == before["pid"]


def test_a_question_is_answered_as_it_comes_with_its_own_accept_length(tiny: Deployment) -> None:
    told = tiny.run("ask", "capital of France?", "--max-tokens", "40").json
    assert ("Paris" in told["answer"], told["tokens"], told["accept_length"] > 3) == (True, 40, True)


def loaded(row: Mapping[str, Any]) -> Any:
    """The checksums of the draft that the run of this row has loaded."""
    return json.loads((Path(row["folder"]) / "weights.json").read_text())["checksums"]


def test_a_draft_is_exchanged_while_it_serves(tiny: Deployment, tmp_path: Path) -> None:
    """A dead one, and the healthy one again: its accept length, its answers, its weights are those of the start."""
    started = tiny.project.status()
    question = ("ask", "count from 3", "--max-tokens", "48")
    told = tiny.run(*question).json
    dead = tiny.run("restart", "--ckpt", str(places.broken("nan-norm", tmp_path)), "--hot", *WAIVED)
    assert (dead.code, dead.json["verdict"]["mode"], NONE in dead.err) == (9, "swap", True), dead.err
    worse, without = tiny.project.status(), tiny.run(*question).json
    assert (worse["pid"], worse["draft"] != started["draft"]) == (started["pid"], True)
    assert loaded(worse) != loaded(started)
    assert (without["answer"], without["accept_length"] < 1.05) == (told["answer"], True)
    back = tiny.run("restart", "--ckpt", str(HEALTHY))
    assert (back.code, back.json["verdict"]["mode"]) == (0, "swap"), back.err
    again, same = tiny.project.status(), tiny.run(*question).json
    assert (again["pid"], again["draft"], loaded(again)) == (
        started["pid"], started["draft"], loaded(started),
    )  # fmt: skip
    assert (same["answer"], same["accept_length"]) == (told["answer"], told["accept_length"])


@dataclass(frozen=True)
class Case:
    """A restart: another draft or other words, and how it ends."""

    draft: str
    code: int
    said: str
    words: tuple[str, ...] = ()
    length: tuple[float, float] | None = None
    touched: bool = field(default=True)


STORY = {
    "without its d2t, it is refused before anything is touched": Case("no-d2t", 5, "d2t is missing", touched=False),
    "without its d2t, waived, not one token is accepted": Case("no-d2t", 9, NONE, WAIVED, (1.0, 1.02)),
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
SELDOM = {
    "a draft that does not load is explained",
    "the healthy draft by another algorithm is next to worthless",
    "without its head, waived, not one token is accepted",
}


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=name, marks=[pytest.mark.full] * (name in SELDOM)) for name, case in STORY.items()]
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
    proven(tiny.project, draft_told=True)
    tiny.down_without_a_trace()


@pytest.mark.sshd
@pytest.mark.namespace
def test_the_same_over_ssh(fleet, tmp_path: Path) -> None:
    needs(ENVIRONMENT)
    with deployment(tmp_path / "project", places.over_ssh(*fleet(1)), PROFILE) as made:
        made.up()
        done = made.run("smoke")
        assert (done.code, "Paris" in done.err) == (0, True), done.err
        before = made.project.status()["pid"]
        done = made.run("restart", "--ckpt", str(places.broken("zero-layer", tmp_path)), "--hot", *WAIVED)
        assert (done.code, done.json["verdict"]["mode"], 1.15 < accept_length(done) < 3.5) == (0, "swap", True), (
            done.err
        )
        assert made.project.status()["pid"] == before
        made.down_without_a_trace()
