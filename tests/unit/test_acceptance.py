"""Accept length, by one definition."""

from __future__ import annotations

import pytest

from deploy.engines import Counters, Totals
from deploy.measuring import acceptance
from deploy.measuring.sample import Sample

LENGTHS = [
    ("all of three", [Counters(40, 10, 30, 30)], 4.0),
    ("nothing", [Counters(40, 40, 111, 0)], 1.0),
    ("half", [Counters(60, 40, 120, 20)], 1.5),
    (
        "a long answer weighs more than a short one",
        [Counters(400, 100, 300, 300), Counters(10, 10, 30, 0)],
        1 + 300 / 110,
    ),
    ("drafted tokens that nobody tells", [Counters(40, 10, None, 30)], 4.0),
    ("one answer without a step", [Counters(1, 0, 0, 0), Counters(40, 10, 30, 30)], 4.0),
]


@pytest.mark.parametrize(("requests", "length"), [case[1:] for case in LENGTHS], ids=[case[0] for case in LENGTHS])
def test_it_is_one_and_the_drafts_accepted_for_each_verify_step(requests, length):
    found = acceptance.over(requests)
    assert found
    assert found.length == pytest.approx(length)
    assert found.generated == sum(request.generated for request in requests)


UNKNOWN = [
    ("no requests", []),
    ("no steps told", [Counters(40, None, None, None)]),
    ("accepted not told", [Counters(40, 10, 30, None)]),
    ("one of two does not tell", [Counters(40, 10, 30, 30), Counters(5, None, None, None)]),
    ("not one step", [Counters(1, 0, 0, 0)]),
]


@pytest.mark.parametrize("requests", [case[1] for case in UNKNOWN], ids=[case[0] for case in UNKNOWN])
def test_what_was_not_told_is_not_measured_as_one(requests):
    assert acceptance.over(requests) is None


IMPOSSIBLE = [
    ("more in a step than was drafted", Counters(64, 5, None, 500_000), 3, "500000 drafts accepted in 5 verify steps"),
    ("one more than the steps had", Counters(64, 5, None, 16), 3, "of 3 drafted tokens each"),
    ("without a step", Counters(64, 0, None, 1), 3, "1 drafts accepted in 0 verify steps"),
    ("more than was drafted at all", Counters(64, 10, 12, 13), None, "of 12 drafted tokens"),
    ("all of them", Counters(64, 5, 15, 15), 3, ""),
    ("nobody knows how many are drafted", Counters(64, 5, None, 40), None, ""),
    ("not told", Counters(64, None, None, None), 3, ""),
]


@pytest.mark.parametrize(
    ("told", "num_steps", "why"), [case[1:] for case in IMPOSSIBLE], ids=[case[0] for case in IMPOSSIBLE]
)
def test_counters_that_cannot_be_true_are_told(told, num_steps, why):
    found = acceptance.impossible([Counters(40, 10, 30, 20), told], num_steps)
    assert why in found
    assert bool(found) is bool(why)


def test_what_was_counted_between_two_looks_is_the_difference_of_what_was_told_both_times():
    before, after = Totals(100, 40, None, 30, requests=4), Totals(228, 72, 96, 126, requests=6)
    assert acceptance.between(before, after) == Totals(128, 32, None, 96, requests=2)
    assert acceptance.between(None, after) is acceptance.between(before, None) is None


OWN = [Counters(64, None, None, None), Counters(64, None, None, None)]
COUNTED = [
    ("ours alone", Totals(128, 32, 96, 96, requests=2), ""),
    ("one more", Totals(128, 32, 96, 96, requests=3), "3 requests and 128 tokens, of which 2 and 128 are ours"),
    ("one that has not ended", Totals(140, 36, 96, 96, requests=2), "2 requests and 140 tokens"),
    ("one of ours is not counted yet", Totals(64, 16, 48, 48, requests=1), ""),
]


@pytest.mark.parametrize(("counted", "why"), [case[1:] for case in COUNTED], ids=[case[0] for case in COUNTED])
def test_more_than_our_own_requests_are_those_of_others(counted, why):
    found = acceptance.strangers(counted, OWN)
    assert why in found
    assert bool(found) is bool(why)


def test_a_server_that_counts_too_little_tells_nothing():
    assert [bool(acceptance.short(counted, OWN)) for _, counted, _ in COUNTED] == [False, False, False, True]


def test_chance_lies_below_what_counts_as_dead_and_the_default_gate_above():
    from deploy.profile import DEFAULT_GATES

    assert 1.0 < acceptance.DEAD < float(DEFAULT_GATES["accept_length"].split()[1])


@pytest.mark.parametrize(("num_steps", "high"), [(3, 4.0), (None, 5.0)])
def test_no_interval_goes_beyond_what_a_step_can_bring(num_steps, high):
    told = [Counters(40, 10, 30, 30), Counters(40, 20, 60, 20)]
    samples = [Sample(f"prose/{n}", "prose", 1, 1, 0.0, 1.0, 0.1, counters=one) for n, one in enumerate(told)]
    found = acceptance.shared(samples, num_steps)
    assert found
    assert found.high
    assert (found.high == high) if num_steps else (found.high > high)
