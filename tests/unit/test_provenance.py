"""Numbers that are not surely the run's are none: failed requests, others who asked, a clock that jumped."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deploy.bench import provenance
from deploy.engines import Counters
from deploy.measuring.measurement import Counted, Turn
from deploy.measuring.sample import Sample

OURS = Sample("code/1", "code", 1, 1, 0.0, 0.5, 0.1, counters=Counters(10, 5, 15, 4))
FAILED = replace(OURS, counters=None, error="answers 500: out of memory")


def turn(requests: int | None = 10, generated: int = 100, **fields: float) -> Turn:
    told = {"concurrency": 1, "number": 1, "seconds": 5.0, **fields}
    return Turn(counted=Counted(generated=generated, requests=requests), **told)  # type: ignore[arg-type]


CASES: dict[str, tuple[Turn, list[Sample], str]] = {
    "all is well": (turn(), [OURS] * 10, ""),
    "it counts nothing": (Turn(concurrency=1, number=1, seconds=5.0), [OURS] * 10, ""),
    "it counts tokens alone": (turn(None, 100), [OURS] * 10, ""),
    "it counts tokens alone, and others'": (
        turn(None, 107),
        [OURS] * 10,
        "others asked meanwhile: the server counted 107 tokens, of which 100 are ours",
    ),
    "it counts tokens alone, and one of a hundred failed": (turn(None, 1007), [OURS] * 99 + [FAILED], ""),
    "others asked": (turn(11, 107), [OURS] * 10, "others asked meanwhile: the server counted 11 requests and 107"),
    "others still wait for the end": (turn(10, 107), [OURS] * 10, "others asked meanwhile: the server counted 10"),
    "it counted fewer than ours": (turn(9, 90), [OURS] * 10, ""),  # which shows nobody else
    "it was started anew": (turn(-14, -140), [OURS] * 10, "the server was started anew meanwhile: in round 1 at"),
    "one of a hundred failed": (turn(100, 1000), [OURS] * 99 + [FAILED], ""),
    "one of a hundred failed, and others asked": (turn(103, 1030), [OURS] * 99 + [FAILED], "others asked meanwhile"),
    "two of a hundred failed": (
        turn(100, 1000),
        [OURS] * 98 + [FAILED] * 2,
        "2 of 100 requests failed: answers 500: out of memory",
    ),
    "all failed, in several ways": (
        turn(),
        [FAILED, FAILED, replace(FAILED, error="no answer")],
        "3 of 3 requests failed: 2 of them: answers 500: out of memory",
    ),
    "the clock went forward": (turn(clock_jump=3.0), [OURS] * 10, "the host's clock jumped by +3.0 s in round 1"),
    "the clock went back": (turn(clock_jump=-3.0), [OURS] * 10, "the host's clock jumped by -3.0 s in round 1"),
    "the clock is kept right": (turn(clock_jump=0.02), [OURS] * 10, ""),
}


@pytest.mark.parametrize("case", CASES)
def test_why_there_is_no_number(case: str) -> None:
    one, samples, why = CASES[case]
    found = provenance.against([one], samples)
    assert found.startswith(why) if why else not found


def test_what_is_counted_late_is_counted_in_the_next_round() -> None:
    turns = [turn(9, 90), turn(11, 110, number=2)]
    samples = [*[OURS] * 10, *[replace(OURS, round=2)] * 10]
    assert provenance.against(turns, samples) == ""
    assert provenance.against([*turns[:1], turn(12, 120, number=2)], samples)


def test_a_round_whose_counters_could_not_be_read_is_not_judged_by_them() -> None:
    turns = [turn(), Turn(concurrency=1, number=2, seconds=5.0)]
    samples = [*[OURS] * 10, *[replace(OURS, round=2)] * 10]
    assert provenance.against(turns, samples) == ""


@pytest.mark.parametrize(("errors", "hopeless"), [(1, False), (2, False), (3, True)])
def test_rounds_go_on_until_nothing_that_comes_could_save_them(errors: int, *, hopeless: bool) -> None:
    samples = [*[FAILED] * errors, *[OURS] * 7]
    assert bool(provenance.hopeless([turn(25)], samples, planned=200)) == hopeless


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [({(7, 100)}, {(7, 100), (9, 140)}, True), (set(), {(9, 140)}, True), ({(7, 100)}, {(7, 220)}, False)],
    ids=["one more", "not seen", "started anew"],
)
def test_who_answers_at_the_end_is_who_answered_at_the_beginning(
    before: set[tuple[int, int]], after: set[tuple[int, int]], *, same: bool
) -> None:
    assert (provenance.exchanged(before, after) == "") is same
