"""What gates are worth, on simulated draws: how often noise fails a run, and how often a real loss is caught."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean

import pytest

from deploy.config.gates import parse
from deploy.config.questions import Bench
from deploy.measuring import judging, statistics
from deploy.measuring.measurement import Against, Figure, Measurement, Percentiles
from tests import measurements

REPEATS = 1000
SPREAD = 0.03


@dataclass(frozen=True)
class Case:
    """A gate, and what is true: so many times what the last good run was. Spreads are relative."""

    name: str
    gate: str
    truth: float
    between_rounds: float = SPREAD
    between_runs: float = 0.0
    spread: float = 0.0  # of runs, as the profile says it
    rounds: int = Bench().rounds
    most: int = Bench().most_rounds
    measure: str = "tok_s"


def outcomes(case: Case) -> dict[str, float]:
    """{state: in which part of the repeats the gate ends so}, and the rounds that were measured, as `rounds`."""
    draw = random.Random(case.name)
    found, rounds = Counter[str](), []
    for _ in range(REPEATS):
        state, used = once(case, draw)
        found[state] += 1
        rounds.append(used)
    return {**{state: number / REPEATS for state, number in found.items()}, "rounds": fmean(rounds)}


def once(case: Case, draw: random.Random) -> tuple[str, int]:
    """As the step does: look, and measure on while the noise hides the answer."""
    before, now = (served(case, draw, truth) for truth in (100.0, 100.0 * case.truth))
    good = statistics.figure(before() for _ in range(case.rounds))
    last = Against(run="r0", at=0.0, figures={case.measure: good, f"{case.measure}@1": good})
    values: list[float] = []
    looks = judging.looks(case.rounds, case.most)
    for rounds in looks:
        values += [now() for _ in range(rounds - len(values))]
        judged = judging.judge({case.measure: parse(case.gate)}, measured(case, values, last), len(looks), case.spread)
        if not judging.undecided(judged):
            break
    return judged[0].state, len(values)


def served(case: Case, draw: random.Random, truth: float) -> Callable[[], float]:
    """A server, started once: its rounds."""
    own = truth * math.exp(draw.gauss(0, case.between_runs))
    return lambda: own * (1 + draw.gauss(0, case.between_rounds))


RUNG = measurements.rung(1, 100.0, None, ttft=None, itl=None, tok_s_stream=None)
MEASURED = Measurement(at=0.0, on=measurements.on("r1"), rungs=(RUNG,))


def measured(case: Case, values: list[float], last: Against) -> Measurement:
    figure = statistics.figure(values)
    told: dict[str, Figure | Percentiles] = {"tok_s": figure}
    if case.measure == "ttft_p95":
        told = {"ttft": Percentiles.model_construct(p50=figure, p95=figure, p99=figure)}
    return MEASURED.model_copy(update={"rungs": (RUNG.model_copy(update=told),), "last_good": last})


NO_CHANGE = [
    Case("as good as its bar", ">= 1.0 x last good", 1.0),
    Case("better than its bar", ">= 0.95 x last good", 1.0),
    Case("less is better", "<= 1.0 x last good", 1.0, measure="ttft_p95"),
    Case("less is better, with room", "<= 1.05 x last good", 1.0, measure="ttft_p95"),
    Case("few rounds, many looks", ">= 1.0 x last good", 1.0, rounds=2, most=16),
    Case("one look", ">= 1.0 x last good", 1.0, rounds=5, most=5),
    Case("noisier", ">= 1.0 x last good", 1.0, between_rounds=0.1),
    Case("a number", ">= 100", 1.0),
    Case("a number, many looks", "<= 100", 1.0, rounds=3, most=24),
    Case("starts differ, and rounds", ">= 0.95 x last good", 1.0, between_runs=0.02),
    Case("starts differ, as is said", ">= 1.0 x last good", 1.0, between_rounds=0.01, between_runs=0.03, spread=0.03),
    Case("starts differ, and the bar is farther", ">= 0.9 x last good", 1.0, between_rounds=0.01, between_runs=0.03),
]


@pytest.mark.parametrize("case", NO_CHANGE, ids=lambda case: case.name.replace(" ", "-"))
def test_noise_fails_a_run_that_is_as_good_as_before_in_at_most_one_of_twenty(case):
    assert outcomes(case).get("fails", 0.0) <= 0.05


@pytest.mark.parametrize(
    "case",
    [
        Case("as bad as its bar", "> 100", 1.0),
        Case("a loss down to its bar", ">= 0.9 x last good", 0.9),
    ],
    ids=lambda case: case.name.replace(" ", "-"),
)
def test_noise_passes_a_run_that_is_at_its_bar_in_at_most_one_of_twenty(case):
    assert outcomes(case).get("holds", 0.0) <= 0.05


LOST = [
    Case("a tenth", ">= 0.95 x last good", 0.9),
    Case("a tenth slower to answer", "<= 1.05 x last good", 1.1111, measure="ttft_p95"),
    Case("a tenth below a number", ">= 95", 0.9),
]


@pytest.mark.parametrize("case", LOST, ids=lambda case: case.name.replace(" ", "-"))
def test_a_loss_of_a_tenth_is_caught_in_nine_of_ten(case):
    found = outcomes(case)
    assert found["fails"] >= 0.9
    assert found.get("holds", 0.0) == 0.0


def test_a_loss_of_a_tenth_passes_in_at_most_one_of_ten_where_starts_differ_by_as_much_as_rounds():
    """No number of rounds tells what another start would have been: two starts of a spread of 3 % differ by 4.2 %."""
    found = outcomes(Case("a tenth between starts", ">= 0.95 x last good", 0.9, between_runs=SPREAD))
    assert found.get("holds", 0.0) <= 0.1


def test_what_has_not_changed_passes_mostly():
    found = outcomes(Case("unchanged", ">= 0.95 x last good", 1.0))
    assert found["holds"] >= 0.9
    assert found["rounds"] < 1.5 * Bench().rounds
