from __future__ import annotations

import random
from math import inf, isclose
from statistics import fmean, stdev

import pytest

from deploy.measuring import statistics
from deploy.measuring.measurement import Figure


def within(band: tuple[float | None, float | None], truth: float) -> bool:
    low, high = band
    assert low is not None
    assert high is not None
    return low <= truth <= high


# (tail, degrees of freedom, t): from the printed tables
TABLE = [
    (0.025, 1, 12.7062),
    (0.025, 2, 4.3027),
    (0.025, 4, 2.7764),
    (0.05, 4, 2.1318),
    (0.05, 10, 1.8125),
    (0.005, 14, 2.9768),
    (0.025, 30, 2.0423),
    (0.0005, 3, 12.9240),
    (0.025, 1e6, 1.95997),
]


@pytest.mark.parametrize(("tail", "freedom", "value"), TABLE)
def test_students_t_is_that_of_the_tables(tail, freedom, value):
    assert isclose(statistics.student(tail, freedom), value, rel_tol=5e-5)
    assert isclose(statistics.beyond(statistics.student(tail, freedom), freedom), tail, rel_tol=1e-9)


def test_the_band_holds_the_truth_as_often_as_it_says():
    draw = random.Random(1)
    found = [statistics.figure(draw.gauss(100, 3) for _ in range(5)) for _ in range(2000)]
    assert 0.94 <= fmean(within((one.low, one.high), 100) for one in found) <= 0.96


def test_the_band_of_a_ratio_holds_the_truth_as_often_as_it_says():
    draw, held = random.Random(2), []
    for _ in range(2000):
        top, bottom = ([draw.gauss(mean, 0.03 * mean) for _ in range(5)] for mean in (130, 100))
        found = statistics.ratio(statistics.figure(top), statistics.figure(bottom))
        assert found is not None
        held.append(within((found.low, found.high), 1.3))
    assert 0.94 <= fmean(held) <= 0.97


def test_the_band_of_acceptance_holds_the_truth_as_often_as_it_says():
    """Answers differ in how well they are drafted, and in how long they are."""
    draw, held = random.Random(3), []
    for _ in range(1000):
        pairs = []
        for _ in range(24):
            rate, steps = draw.uniform(0.4, 0.8), draw.randrange(10, 40)
            pairs.append((sum(draw.random() < rate for _ in range(2 * steps)), steps))
        held.append(within(statistics.share(pairs)[1:], 2.2))
    assert 0.92 <= fmean(held) <= 0.97


def test_long_answers_weigh_more():
    length, *band = statistics.share([(300, 100), (0, 20)])
    assert length == 3.5
    assert within((band[0], band[1]), 3.5)
    assert band[0] == 1.0  # never below it


def test_nothing_accepted_has_no_noise():
    assert statistics.share([(0, 64)] * 8) == (1.0, 1.0, 1.0)


# rounds of two, and how many of each would tell which is faster
FEW: dict[str, tuple[list[float], list[float], int | None]] = {
    "two, one of them wild": ([100, 112], [99, 100], 9),
    "two": ([100, 106], [98, 104], 38),
    "three": ([100, 103, 106], [98, 101, 104], 20),
    "five": ([100, 104, 108, 102, 106], [96, 104, 100, 98, 102], 8),
    "one, which tells no spread": ([100], [99, 98], 3),
    "too close": ([100, 106], [99.9, 106], None),
    "alike": ([100, 106], [100, 106], None),
    "nothing": ([100, 106], [0, 0], None),
}


@pytest.mark.parametrize(("top", "bottom", "rounds"), FEW.values(), ids=list(FEW))
def test_so_many_rounds_find_a_difference_as_often_as_not(top, bottom, rounds):
    assert statistics.telling(statistics.figure(top), statistics.figure(bottom), 128) == rounds
    if rounds is None or len(top) == 1:
        return
    draw, found = random.Random(4), []
    for _ in range(1000):
        one, other = (
            statistics.figure(draw.gauss(fmean(known), stdev(known)) for _ in range(rounds)) for known in (top, bottom)
        )
        ratio = statistics.ratio(one, other)
        found.append(ratio is not None and ratio.low is not None and ratio.low > 1)
    assert 0.5 <= fmean(found) <= 0.75


@pytest.mark.parametrize("pairs", [[(3, 2)], [(3, 2), (0, 0)]], ids=["one", "one-of-two"])
def test_one_request_tells_no_band(pairs):
    assert statistics.share(pairs) == (2.5, None, None)


def test_one_round_tells_no_band():
    assert statistics.figure([5.0]) == Figure(value=5.0, rounds=(5.0,))
    assert statistics.ratio(Figure(value=6.0, rounds=(6.0,)), statistics.figure([2, 4])) == Figure(value=2.0)


def test_rounds_that_are_all_alike_have_a_band_without_width():
    found = statistics.figure([2.5, 2.5, 2.5])
    assert (found.value, found.low, found.high) == (2.5, 2.5, 2.5)


def test_nothing_is_a_multiple_of_nothing():
    assert statistics.ratio(statistics.figure([1, 2]), statistics.figure([0, 0])) is None
    assert statistics.ratio(statistics.figure([0, 0]), statistics.figure([1, 2])) == Figure(value=0.0)


@pytest.mark.parametrize(
    "empty",
    [
        lambda: statistics.figure([]),
        lambda: statistics.share([]),
        lambda: statistics.share([(0, 0)]),
        lambda: statistics.percentile([], 50),
    ],
    ids=["figure", "share", "no-steps", "percentile"],
)
def test_of_nothing_nothing_is_told(empty):
    with pytest.raises(ValueError, match=r"^no "):
        empty()


@pytest.mark.parametrize(("percent", "value"), [(0, 1), (50, 2.5), (95, 3.85), (100, 4)])
def test_percentiles_lie_between_the_values_that_stand_there(percent, value):
    assert isclose(statistics.percentile([4, 1, 3, 2], percent), value)


def test_the_errors_of_two_means_add_up():
    both = statistics.Noise(3.0, 4) + statistics.Noise(4.0, 4)
    assert both.error == 5.0
    assert 4 < both.freedom < 8
    assert (statistics.Noise(0.0, 4) + statistics.Noise(0.0, 4)).margin() == 0.0
    assert (statistics.Noise(1.0, 4) + statistics.Noise(0.0, 2)).freedom == 4
    assert statistics.Noise(2.0, 9).times(-1.5) == statistics.Noise(3.0, 9)
    assert statistics.Noise(1.0, 4).margin() < inf
