"""What the real SGLang accepts of a draft: measured, held against its own log, and explained; first as the whole story.

The story: a trained draft of which not one token is accepted. Its layer's names are not those that the server knows, so
they are mended, by hand; and it is hardly better, since the server was told another algorithm, by which the states of
the aux layers never reach the draft. Each start takes 25 to 60 s, so each case goes on from what the last one left.
The draft is the telling pair's, whose accept length falls with each fault (examples/telling-eagle3/README.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from deploy.measuring.measurement import Measurement
from tests import places
from tests.installed import Deployment, deployment, needs
from tests.project import TELLING, Done
from tests.telling import PROMPTS, SERVED

pytestmark = [pytest.mark.engine, pytest.mark.sglang, pytest.mark.timeout(900)]

TARGET, HEALTHY = TELLING / "target", TELLING / "draft"
PROFILE: Mapping[str, Any] = {
    **SERVED,
    "bench": {"prompts": PROMPTS, "max_tokens": 64, "rounds": 2, "most_rounds": 2},
    "args": {"decode-log-interval": 1},  # a line of the log each verify step: it can be held against every one
    "gates": {"accept_length": ">= 2.5"},
}
WELL, WEAK, DEAD = (2.5, 4.0), (1.16, 2.4), (1.0, 1.1)
NONE, PART = "not one drafted token is accepted", "only a part of the draft is accepted"
REFUSED, FAILED = 5, 9


@dataclass(frozen=True)
class Served:
    """How a command ended, and what it measured, as the record has it."""

    done: Done
    measured: Measurement
    verdict: Mapping[str, Any]

    @property
    def length(self) -> float:
        assert self.measured.acceptance, (self.measured.why, self.measured.no_acceptance, self.done.err)
        return self.measured.acceptance.accept_length

    @property
    def causes(self) -> list[tuple[str, str]]:
        """(its name, what the files say) of each cause, in the order told."""
        return [(cause["name"], cause["says"]) for cause in self.verdict["diagnosis"]["causes"]]

    @property
    def guilty(self) -> list[str]:
        return [name for name, says in self.causes if says == "FAIL"]


def served(made: Deployment, *words: str) -> Served:
    done = made.run(*words)
    told = made.project.told("verdict")  # that of findings is a word
    verdict = next((one for one in told if isinstance(one, dict) and "gates" in one), {})
    return Served(done, made.measured(), verdict)


@pytest.fixture(scope="module")
def telling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """The trained draft with foreign names of its layer's tensors, and the wrong algorithm: nothing runs yet."""
    needs("sglang-cpu")
    folder = tmp_path_factory.mktemp("telling")
    draft = str(places.broken("unknown-prefix", folder, HEALTHY))
    fields = {**PROFILE, "draft": draft, "speculative": {"algorithm": "EAGLE", "num_steps": 3, "eagle_topk": 1}}
    with deployment(folder / "project", places.here(), "local-sglang", **fields) as made:
        yield made


def agreed(found: Served) -> None:
    """The answers' counters are those of the server's own log, step by step, and of its own metrics.

    Its log also counts the step that is run ahead when an answer has ended already, one a request at most.
    """
    measured = found.measured
    told = {one.source: one for one in measured.witnesses}
    assert measured.acceptance
    log = told["the log"]
    steps = int(log.note.split(" ")[0])
    requests = sum(rung.requests for rung in measured.rungs)
    assert 0 <= steps - measured.acceptance.steps <= requests, log
    assert log.accept_length == pytest.approx(found.length, abs=0.005)
    assert (log.agrees, told["/metrics"].agrees, told["spec_accept_length"].agrees) == (True, True, None)
    assert "as since 0.5.11" in log.note


def test_the_whole_story(telling: Deployment) -> None:
    """Refused before the load with both causes; served all the same, told by its number; mended in half, and wholly."""
    refused = telling.run("up", "profile=tiny")
    assert refused.code == REFUSED
    for words in ("drops tensors of the draft without a word", "algorithm EAGLE with an EAGLE-3 draft"):
        assert words in refused.err

    dead = served(telling, "up", "profile=tiny", "waive=[ckpt]")
    assert (dead.done.code, NONE in dead.done.err) == (FAILED, True), dead.done.err
    assert DEAD[0] <= dead.length <= DEAD[1]
    assert dead.guilty == ["loader", "algorithm"]

    half = served(telling, "restart", "--ckpt", str(HEALTHY), "waive=[ckpt]")
    assert (half.done.code, NONE in half.done.err) == (FAILED, True), half.done.err
    assert DEAD[0] <= half.length <= DEAD[1]
    assert (half.guilty, ("loader", "ok") in half.causes) == (["algorithm"], True)

    mended = served(telling, "restart", "--ckpt", str(HEALTHY), "speculative.algorithm=EAGLE3")
    assert mended.done.code == 0, mended.done.err
    assert WELL[0] <= mended.length <= WELL[1]
    for found in (dead, half, mended):
        agreed(found)


@dataclass(frozen=True)
class Case:
    """A fault: the accept lengths between which it is measured; the causes of which the files say that they are so; the
    cause that is told first, where they say so of none.
    """

    lengths: tuple[float, float]
    guilty: tuple[str, ...] = ()
    first: str = ""


CASES = {
    "swapped-norms": Case(WEAK, first="aux ids"),
    "shifted-aux": Case(WEAK, first="aux ids"),
    "flat-aux": Case(WEAK, first="aux ids"),
    "rope-theta": Case(WEAK, first="aux ids"),
    "no-fc": Case(DEAD, ("loader",)),
    "no-d2t": Case(DEAD, ("d2t",)),
    "no-lm-head": Case(DEAD, ("head",)),
    "zero-layer": Case(DEAD, ("values",)),
    "nan-norm": Case(DEAD, ("values",)),
    "random-layer": Case(DEAD, first="values"),
}
IN_CI = "swapped-norms"


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.full] * (name != IN_CI)) for name in CASES])
def test_a_fault_has_its_accept_length_and_its_diagnosis(telling: Deployment, tmp_path: Path, name: str) -> None:
    case, draft = CASES[name], places.broken(name, tmp_path, HEALTHY)
    found = served(telling, "restart", "--ckpt", str(draft), "speculative.algorithm=EAGLE3", "waive=[ckpt]")
    assert (found.done.code, (NONE if case.lengths == DEAD else PART) in found.done.err) == (FAILED, True), (
        found.done.err
    )
    assert case.lengths[0] <= found.length <= case.lengths[1]
    assert tuple(found.guilty) == case.guilty
    assert found.causes[0][0] == (case.first or case.guilty[0])
    agreed(found)
