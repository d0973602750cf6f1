"""What the log and the metrics say of a measurement: held against the answers' own counters as exactly as it can be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy import engines
from deploy.engines import Counters, Totals
from deploy.measuring import witnesses
from deploy.measuring.measurement import Witness
from deploy.measuring.witnesses import Own
from tests import measurements

LOGS = Path(__file__).parents[1] / "fixtures" / "logs"
DECODE = (
    "[2026-11-30 18:44:15 TP0] Decode batch, #running-req: {streams}, #token: 160, token usage: 0.01, "
    "accept len: {length:.2f}, accept rate: {rate:.2f}, cpu graph: False, gen throughput (token/s): 15.64"
)


def decode(length: float, rate: float, streams: int = 1) -> str:
    return DECODE.format(length=length, rate=rate, streams=streams)


def answers(count: int, steps: int, accepted: int, drafted: int | None = None) -> Own:
    """So many answers alike."""
    told = Counters(steps + accepted + 1, steps, 3 * steps if drafted is None else drafted, accepted)
    return Own([told] * count)


def of_log(engine: str, lines: list[str], own: Own, every: int | None = None, tokens: int | None = 4) -> Witness | None:
    how = engines.load(engine).GAUGES.written
    assert how
    return witnesses.of_log(how if every is None else replace(how, every=every), lines, own, tokens)


def told(found: Witness | None) -> tuple[Any, ...]:
    assert found
    return found.accept_length, found.agrees


LONG = answers(10, 200, 400)  # accept length 3.00 in 2000 steps
CASES = {
    "lines that say the same": (LONG, [decode(3.0, 0.67)] * 48, (3.0, True)),
    "a line of many streams weighs as many": (LONG, [decode(3.2, 0.73, 8), decode(1.4, 0.13)] * 10, (3.0, True)),
    "as much as two lines' steps may differ": (LONG, [decode(2.9, 0.63)] * 48, (2.9, True)),
    "more than these may not": (LONG, [decode(2.5, 0.5)] * 48, (2.5, False)),
    "a short answer says nothing of a line": (answers(1, 20, 40), [decode(1.5, 0.17)], (1.5, None)),
    "a dead draft": (answers(10, 200, 0), [decode(1.0, 0.0)] * 48, (1.0, True)),
}


@pytest.mark.parametrize("case", CASES)
def test_the_log_of_sglang_agrees_as_far_as_its_lines_are_of_our_steps(case):
    own, lines, expected = CASES[case]
    assert told(of_log("sglang", lines, own)) == expected


def test_a_line_each_step_is_held_against_each_step():
    own = answers(2, 30, 60)
    assert told(of_log("sglang", [decode(3.0, 0.67)] * 60, own, every=1)) == (3.0, True)
    assert told(of_log("sglang", [decode(3.0, 0.67)] * 55 + [decode(1.0, 0.0)] * 7, own, every=1)) == (2.774, False)


def test_both_formulas_of_the_accept_rate_are_told_apart():
    dead = answers(10, 200, 0)
    old = of_log("sglang", [decode(1.0, 0.2)] * 48, dead, tokens=5)
    new = of_log("sglang", [decode(1.0, 0.0)] * 48, dead, tokens=5)
    odd = of_log("sglang", [decode(1.0, 0.5)] * 48, dead, tokens=5)
    assert old
    assert new
    assert odd
    assert old.note.endswith("its accept rate 0.20 is accept len / draft tokens, as up to 0.5.10")
    assert new.note.endswith("its accept rate 0.00 is (accept len - 1) / (draft tokens - 1), as since 0.5.11")
    assert odd.note.endswith("its accept rate 0.50 fits no formula")
    assert (old.accept_length, old.agrees) == (new.accept_length, new.agrees) == (1.0, True)


def test_what_was_logged_of_nothing_verified_is_no_witness():
    assert of_log("sglang", [], LONG) is None
    assert of_log("sglang", ["Decode batch, #running-req: 1, gen throughput (token/s): 8.0"], LONG) is None
    assert of_log("sglang", [decode(3.0, 0.67)], Own([Counters(5, None, None, None)])) is None


def own_of(accepted: int, drafted: int, steps: int) -> Own:
    return Own([Counters(accepted + steps + 1, steps, drafted, accepted)])


LOGGED = [
    ("sglang", "sglang-0.5.23-no-d2t.log", answers(3, 93, 0), (1.0, True)),
    ("sglang", "sglang-0.5.23-good.log", answers(3, 27, 80), (3.925, None)),
    ("vllm", "vllm-0.32.0-good.log", own_of(48, 54, 18), (3.667, True)),
    ("vllm", "vllm-0.32.0-good.log", own_of(40, 54, 18), (3.667, False)),
    ("vllm", "vllm-0.32.0-good.log", own_of(48, 60, 20), (3.667, None)),
    ("llamacpp", "llamacpp-good.log", own_of(102, 105, 36), (3.833, True)),
    ("llamacpp", "llamacpp-random-head.log", own_of(0, 402, 134), (1.0, True)),
    ("llamacpp", "llamacpp-random-head.log", own_of(9, 402, 134), (1.0, False)),
]


@pytest.mark.parametrize(("engine", "name", "own", "expected"), LOGGED)
def test_real_logs(engine, name, own, expected):
    assert told(of_log(engine, (LOGS / name).read_text().splitlines(), own)) == expected


COUNTED = {
    "all of it is told": (Totals(90, 30, 90, 60, requests=2), (3.0, True)),
    "another length": (Totals(90, 30, 90, 40, requests=2), (2.333, False)),
    "others asked, too": (Totals(190, 60, 180, 130, requests=4), None),
    "no steps": (Totals(90, None, None, None, requests=2), None),
    "tokens and steps alone": (Totals(182, 60, None, None, requests=2), (3.033, True)),
    "other tokens and steps": (Totals(182, 80, None, None, requests=2), (2.275, False)),
    "nothing": (None, None),
}


@pytest.mark.parametrize("case", COUNTED)
def test_the_counters_of_the_server(case):
    counted, expected = COUNTED[case]
    own = answers(2, 30, 60)
    if counted and expected and counted.accepted is not None:
        own = Own([Counters(45, 15, 45, 30)] * 2)
    found = witnesses.of_counters(counted, own, "/metrics")
    assert (None if found is None else told(found)) == expected


def test_steps_that_are_reckoned_from_tokens_are_told_as_such():
    own = Own([Counters(45, 16, 45, 30)] * 2)
    found = witnesses.of_counters(Totals(90, 30, 90, 60, requests=2), own, "/metrics")
    assert found
    assert (found.agrees, found.note.endswith("the answers' 32 steps have at most one a request too many")) == (
        True,
        True,
    )


def test_the_engines_own_figure_is_shown_and_not_held_against_ours():
    how = engines.load("sglang").GAUGES.written
    assert how
    found = witnesses.counts_first(how, answers(2, 30, 60))
    assert found
    assert (found.source, *told(found)) == ("spec_accept_length", 3.033, None)


def test_a_disagreement_is_not_lost_by_later_rounds():
    def one(source: str, agrees: bool | None, length: float) -> Witness:
        return Witness(source=source, accept_length=length, agrees=agrees)

    earlier, later = (one("a", False, 1.0), one("b", True, 2.0)), (one("a", True, 3.0), one("b", True, 2.5))
    assert witnesses.merged(earlier, later) == (one("a", False, 1.0), one("b", True, 2.5))


def test_a_disagreement_is_shown_beside_our_own_count():
    told = (Witness(source="the log", accept_length=2.5, agrees=False, note="of 9 lines"),)
    (found,) = witnesses.findings(measurements.made(3.0, 30.0, "20261201-090000-0000e2", witnesses=told))
    assert (found.verdict, found.evidence) == ("WARN", "of 9 lines")
    assert found.what == "the log says accept length 2.50, the answers' own counters 3.00"
    assert list(witnesses.findings(measurements.healthy())) == []
