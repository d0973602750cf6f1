"""What comes of a gate, from measurements on paper."""

from __future__ import annotations

from typing import Any

import pytest

from deploy.config.gates import parse
from deploy.measuring import judging, statistics
from deploy.measuring.judging import Judged
from deploy.measuring.measurement import Figure, Measurement, Quality
from tests import measurements

LOOKS = 2


def only(name: str, gate: str, measured: Measurement | None, looks: int = LOOKS) -> Judged:
    [found] = judging.judge({name: parse(gate)}, measured, looks)
    return found


def rounds(*values: float, last: tuple[float, ...] = (), **more: Any) -> Measurement:
    """One rung whose tok_s is that of these rounds; the last good run's is that of `last`."""
    told = {"tok_s": statistics.figure(values)}
    rung = measurements.rung(4, 100.0, None).model_copy(update=told)
    if last:
        figure = statistics.figure(last)
        good = {"tok_s": Figure(value=1.0), "tok_s@4": figure}
        more["last_good"] = measurements.baseline().against().model_copy(update={"figures": good})
    return Measurement(at=0.0, on=measurements.on("r1"), rungs=(rung,), **more)


STEADY = (99.0, 100.0, 101.0, 100.0)

CASES = {
    "above, with its noise": ("tok_s", ">= 95", rounds(*STEADY), "holds"),
    "below, with its noise": ("tok_s", ">= 105", rounds(*STEADY), "fails"),
    "the noise reaches the bar": ("tok_s", ">= 99.5", rounds(*STEADY), "within"),
    "the bar is reached from below": ("tok_s", ">= 100.5", rounds(*STEADY), "within"),
    "less is wanted": ("tok_s", "<= 105", rounds(*STEADY), "holds"),
    "less is wanted, there is more": ("tok_s", "<= 95", rounds(*STEADY), "fails"),
    "all rounds alike, at the bar": ("tok_s", ">= 100", rounds(100, 100, 100), "holds"),
    "all rounds alike, beyond it is wanted": ("tok_s", "> 100", rounds(100, 100, 100), "fails"),
    "all rounds alike, exactly that": ("tok_s", "== 100", rounds(100, 100, 100), "holds"),
    "noise, exactly that": ("tok_s", "== 100", rounds(*STEADY), "within"),
    "noise, exactly another": ("tok_s", "== 90", rounds(*STEADY), "fails"),
    "one round": ("tok_s", ">= 50", rounds(100), "within"),
    "at its concurrency": ("tok_s@4", ">= 95", rounds(*STEADY), "holds"),
    "at another one": ("tok_s@8", ">= 95", rounds(*STEADY), "unmeasured"),
    "nothing": ("tok_s", ">= 95", None, "unmeasured"),
    "not to be believed": ("tok_s", ">= 95", measurements.nothing(), "unmeasured"),
    "nothing is drafted": ("accept_length", ">= 1.15", rounds(*STEADY, no_acceptance="none told"), "unmeasured"),
    "the last good run": ("tok_s", ">= 0.95 x last good", rounds(*STEADY, last=STEADY), "holds"),
    "worse than that": ("tok_s", ">= 0.95 x last good", rounds(*STEADY, last=(120, 121, 119)), "fails"),
    "its noise counts": ("tok_s", ">= 0.95 x last good", rounds(100, 100, 100, last=(95, 115, 105)), "within"),
    "it has one round": ("tok_s", ">= 0.95 x last good", rounds(*STEADY, last=(100,)), "holds"),
    "only it has rounds": ("tok_s", ">= 0.95 x last good", rounds(100, last=STEADY), "holds"),
    "both have one": ("tok_s", ">= 0.95 x last good", rounds(100, last=(100,)), "within"),
    "some prompts are answered in several ways by themselves": (
        "differences",
        "<= 0",
        rounds(*STEADY, quality=Quality(compared=8, differ=0, unstable=7)),
        "holds",
    ),
    "all are": (
        "differences",
        "<= 0",
        rounds(*STEADY, quality=Quality(compared=8, differ=0, unstable=8)),
        "unmeasured",
    ),
    "there is none": ("tok_s", ">= 0.95 x last good", rounds(*STEADY), "alone"),
    "no baseline": ("tok_s", ">= 1.3 x baseline", rounds(*STEADY), "unmeasured"),
    "no gain without a baseline": ("speedup", ">= 1.3", rounds(*STEADY), "unmeasured"),
    "a gain": ("speedup", ">= 1.3", measurements.healthy(), "holds"),
    "no gain": ("speedup@8", ">= 1.3", measurements.dead(), "fails"),
    "over the baseline": ("tok_s", ">= 1.3 x baseline", measurements.healthy(), "holds"),
    "not over the baseline": ("tok_s", ">= 1.3 x baseline", measurements.dead(), "fails"),
    "the same answers": ("differences", "<= 0", measurements.healthy(), "holds"),
    "other answers": ("differences", "<= 0", measurements.dead(), "fails"),
    "some other answers": ("differences", "<= 2", rounds(*STEADY, quality=Quality(compared=8, differ=2)), "holds"),
    "slow to answer": ("ttft_p95", "<= 0.05", measurements.healthy(), "fails"),
}


@pytest.mark.parametrize(
    ("name", "gate", "measured", "state"), CASES.values(), ids=[case.replace(" ", "-") for case in CASES]
)
def test_a_gate_holds_fails_or_cannot_be_told(name, gate, measured, state):
    found = only(name, gate, measured)
    assert found.state == state
    assert found.holds is {"holds": True, "alone": True, "fails": False}.get(state)


def test_one_round_is_compared_as_it_is_where_there_will_be_no_other():
    assert only("tok_s", ">= 50", rounds(100), looks=1).state == "holds"
    assert only("tok_s", ">= 150", rounds(100), looks=1).state == "fails"


def test_a_look_of_several_is_surer_than_one_alone():
    alone, one_of_four = (only("tok_s", ">= 95", rounds(*STEADY), looks).margin for looks in (1, 4))
    assert alone is not None
    assert one_of_four is not None
    assert one_of_four > 1.5 * alone


@pytest.mark.parametrize(
    ("first", "most", "after"),
    [(8, 16, (8, 16)), (5, 16, (5, 10, 16)), (1, 4, (1, 2, 4)), (8, 8, (8,)), (20, 16, (20,)), (3, 4, (3, 4))],
)
def test_each_look_has_twice_the_rounds(first, most, after):
    assert judging.looks(first, most) == after


@pytest.mark.parametrize(
    ("gates", "measures_on"),
    [
        ({"tok_s": ">= 99.5"}, True),
        ({"tok_s": ">= 99.5", "tok_s@4": ">= 105"}, False),  # it has failed already
        ({"tok_s": ">= 95", "speedup": ">= 1.3"}, False),  # what is not there does not come with more rounds
        ({"tok_s": ">= 99.5", "speedup": ">= 1.3"}, True),
    ],
    ids=["hidden", "failed", "missing", "hidden-and-missing"],
)
def test_more_is_measured_only_where_it_may_tell(gates, measures_on):
    wanted = {name: parse(gate) for name, gate in gates.items()}
    assert judging.undecided(judging.judge(wanted, rounds(*STEADY), LOOKS)) is measures_on


def test_the_words_have_the_value_its_noise_the_bar_and_whose_it_is():
    found = only("tok_s", ">= 0.95 x last good", rounds(*STEADY, last=(104.0, 105.0, 106.0)))
    line = found.line()
    assert line.startswith("tok_s 100 ± ")
    assert " (4 rounds) >= 0.95 x last good = 99.75, of run 20261201-080000-ba5e11 (the noise hides" in line
    assert only("tok_s", ">= 1.15", rounds(3.692, 3.692)).line() == "tok_s 3.692 >= 1.15"
    assert only("speedup", ">= 1.3", rounds(*STEADY)).line().endswith("(there is no baseline: deploy bench --baseline "
                                                                      "measures it)")  # fmt: skip


def test_the_document_says_whether_it_holds_and_nothing_empty():
    assert only("tok_s", ">= 95", rounds(100.0, 100.0)).to_json() == {
        "name": "tok_s",
        "wanted": ">= 95",
        "state": "holds",
        "measured": 100.0,
        "bar": 95.0,
        "margin": 0.0,
        "rounds": 2,
        "holds": True,
    }


@pytest.mark.parametrize(("slo", "state"), [((0.2, None), "holds"), ((0.5, None), "alone")])
def test_what_another_run_counts_as_good_is_no_bar_for_this_one(slo: tuple[float, None], state: str) -> None:
    def kept(run: str, slo: tuple[float, None]) -> Measurement:
        rung = measurements.rung(1, 100.0, None).model_copy(update={"goodput": statistics.figure(STEADY)})
        return Measurement(at=0.0, on=measurements.on(run).model_copy(update={"slo": slo}), rungs=(rung,))

    now = kept("r2", (0.2, None))
    told = now.model_copy(update={"last_good": kept("r1", slo).against(now)})
    assert only("goodput", ">= 0.9 x last good", told).state == state
    assert only("tok_s", ">= 0.9 x last good", told).state != "alone"


def test_a_line_has_numbers_that_can_be_read_and_the_rounds_that_a_speed_up_is_of():
    assert judging.number(21967.8) == "21968"
    assert [judging.number(margin, 2) for margin in (873.2, 87.3, 0.0789)] == ["873", "87", "0.079"]
    measured = measurements.healthy()
    rounds = measured.rungs[0].rounds
    assert rounds > 1
    assert f"({rounds} rounds) >= 1.3" in only("speedup", ">= 1.3", measured).line()
