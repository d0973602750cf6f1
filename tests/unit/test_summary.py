"""From single requests to figures: tokens and not chunks, rounds with their noise, acceptance by one definition."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from deploy.engines import Counters
from deploy.measuring import acceptance, summary
from deploy.measuring.measurement import Counted, Measurement, Turn
from deploy.measuring.sample import Sample
from deploy.measuring.summary import Limits
from deploy.steps.bench import line
from tests import measurements

ON = measurements.on("20261201-090000-0000a1", concurrency=(1, 2))
NONE = Limits()


def sample(prompt: str = "code/sort", **fields: object) -> Sample:
    """One request of 9 tokens: the first after 0.1 s, then two verify steps, of 2 and of 6 tokens."""
    told = {
        "prompt": prompt,
        "kind": prompt.partition("/")[0],
        "concurrency": 1,
        "round": 1,
        "started": 0.0,
        "seconds": 0.7,
        "first": 0.1,
        "first_tokens": 1,
        "chunks": ((0.2, 2), (0.4, 6)),
        "counters": Counters(9, 3, 9, 6),
        "finish": "stop",
        "text": "an answer",
        "tokens_by": "server",
    }
    return Sample(**{**told, **fields})  # type: ignore[arg-type]


def turn(number: int = 1, concurrency: int = 1, seconds: float = 1.0, **fields: object) -> Turn:
    return Turn(concurrency=concurrency, number=number, seconds=seconds, **fields)  # type: ignore[arg-type]


def measured(
    samples: list[Sample], turns: tuple[Turn, ...] = (turn(),), limits: Limits = NONE, **on: object
) -> Measurement:
    of = ON.model_copy(update={"concurrency": tuple(sorted({one.concurrency for one in turns})), **on})
    return summary.of(Measurement(at=0.0, on=of, turns=turns), samples, limits, "/metrics")


def test_time_between_tokens_is_that_of_tokens_not_of_chunks() -> None:
    assert list(summary.between_tokens(sample())) == pytest.approx([0.1, 0.1, *[0.4 / 6] * 6])
    late = sample(chunks=((0.2, 0), (0.4, 2)))  # a chunk that brought no token: its time belongs to the next
    assert list(summary.between_tokens(late)) == pytest.approx([0.3, 0.3])


def test_percentiles_of_a_round_are_over_all_its_tokens_and_requests() -> None:
    (rung,) = measured([sample(), sample("code/sql", first=0.3, chunks=())]).rungs
    assert rung.itl is not None
    assert rung.ttft is not None
    assert rung.itl.p50.value == pytest.approx(0.4 / 6)
    assert rung.itl.p99.value == pytest.approx(0.1)
    assert (rung.ttft.p50.value, rung.ttft.p99.value) == pytest.approx((0.2, 0.298))


def test_speed_is_all_tokens_by_the_time_of_the_round_and_each_round_counts_once() -> None:
    rounds = [sample(), sample("code/sql"), sample(round=2)]
    (rung,) = measured(rounds, (turn(1, seconds=2.0), turn(2, seconds=1.0))).rungs
    assert (rung.rounds, rung.requests, rung.tokens, rung.seconds) == (2, 3, 27, 3.0)
    assert rung.tok_s.rounds == pytest.approx((9.0, 9.0))
    assert rung.tok_s_stream is not None
    assert rung.tok_s_stream.rounds == pytest.approx((8 / 0.6, 8 / 0.6))  # after the first token, while it generates


def test_each_concurrency_has_its_own_figures() -> None:
    found = measured([sample(), sample(concurrency=2, counters=Counters(9, 4, 12, 2))], (turn(), turn(concurrency=2)))
    assert [rung.concurrency for rung in found.rungs] == [1, 2]
    assert found.figures()["accept_length"].value == 3.0
    assert found.figures()["accept_length@2"].value == 1.5
    assert found.alone is not None
    assert found.alone.accept_length == 3.0, "what a verdict tells is what its gate is on"
    assert "(8 drafts kept in 7 steps; 3.00 with one stream, 1.50 with 2 streams)" in line(found)
    assert found.acceptance is not None
    assert {name: share.accept_length for name, share in found.acceptance.by_concurrency.items()} == {
        "1": 3.0,
        "2": 1.5,
    }


def test_acceptance_is_weighted_by_verify_steps_and_told_by_class_and_rank() -> None:
    found = measured(
        [
            sample("code/sort", counters=Counters(100, 90, 270, 9, rank=0)),
            sample("prose/tea", counters=Counters(40, 10, 30, 30, rank=1)),
        ]
    ).acceptance
    assert found is not None
    assert found.accept_length == pytest.approx(1 + 39 / 100)  # not the mean of 1.1 and 4.0
    assert {name: share.accept_length for name, share in found.by_class.items()} == pytest.approx(
        {"code": 1.1, "prose": 4.0}
    )
    assert {name: share.steps for name, share in found.by_rank.items()} == {"0": 90, "1": 10}
    assert (found.steps, found.accepted, found.drafted, found.generated) == (100, 39, 300, 140)
    assert found.definition == acceptance.DEFINITION
    assert found.source == "the answers"


def test_positions_come_from_the_histograms_of_all_answers() -> None:
    one = sample(counters=Counters(9, 4, 12, 5, histogram=(1, 2, 0, 1)))
    other = sample("prose/tea", counters=Counters(9, 4, 12, 12, histogram=(0, 0, 0, 4)))
    found = measured([one, other]).acceptance
    assert found is not None
    assert found.positions == pytest.approx((7 / 8, 5 / 8, 5 / 8))
    for histogram in (None, (0, 0, 4, 0), (0, 0, 0, 4, 4)):  # not told; of other drafts; of other steps
        wrong = replace(other, counters=Counters(9, 4, 12, 12, histogram=histogram))
        assert measured([one, wrong]).acceptance.positions is None  # type: ignore[union-attr]


def test_a_prompt_that_is_asked_again_is_no_new_witness() -> None:
    """Its repeats are alike, so the interval stays as wide as with one round."""
    answers = [sample(f"code/{n}", counters=Counters(30, 10, 30, accepted)) for n, accepted in enumerate((5, 15, 20))]
    once = measured(answers).acceptance
    again = [replace(one, round=number) for number in (1, 2, 3, 4) for one in answers]
    four = measured(again, tuple(turn(number) for number in (1, 2, 3, 4))).acceptance
    assert once is not None
    assert four is not None
    assert (four.low, four.high) == pytest.approx((once.low, once.high))


def test_an_interval_ends_where_no_accept_length_can_be() -> None:
    """With few prompts that differ much, it would reach beyond all that is drafted."""
    answers = [sample(f"code/{n}", counters=Counters(30, 10, 30, accepted)) for n, accepted in enumerate((5, 30, 30))]
    found = measured(answers).acceptance
    assert found is not None
    assert (found.high, found.by_class["code"].high) == (4.0, 4.0)
    assert found.low is not None
    assert found.low < found.accept_length < 4.0


NOTHING: dict[str, tuple[Counters, dict[str, Any], str]] = {
    "it tells none": (Counters(9, None, None, None), {}, "the server tells no acceptance"),
    "nothing is drafted": (Counters(9, None, None, None), {"draft": None, "num_steps": None}, "nothing is drafted"),
    "another load generator tells none": (
        Counters(9, None, None, None),
        {"load": "bench_serving"},
        "the load generator bench_serving tells no acceptance",
    ),
    "more than there was": (Counters(9, 5, 99, 50), {}, "50 drafts accepted in 5 verify steps of 3 drafted tokens"),
    "more than was drafted": (Counters(9, 5, 10, 14), {}, "14 drafts accepted in 5 verify steps, of 10 drafted"),
}


@pytest.mark.parametrize("case", NOTHING)
def test_acceptance_that_is_not_told_or_cannot_be_is_none(case: str) -> None:
    counters, on, why = NOTHING[case]
    found = measured([sample(), sample("code/sql", counters=counters)], **on)
    assert found.acceptance is None
    assert found.no_acceptance.startswith(why)
    assert "accept_length" not in found.figures()
    assert found.figures()["tok_s"].value > 0


def test_an_answer_of_one_token_has_no_verify_step_and_hides_nothing() -> None:
    found = measured([sample(), sample("code/sql", counters=Counters(1, None, None, None), chunks=())])
    assert found.acceptance is not None
    assert found.acceptance.accept_length == 3.0


def test_where_answers_tell_none_the_server_s_own_counters_do() -> None:
    quiet = [sample(round=number, counters=Counters(9, None, None, None)) for number in (1, 2)]
    told = Counted(generated=9, steps=3, drafted=9, accepted=6, requests=1)
    found = measured(quiet, (turn(1, counted=told), turn(2, counted=told)))
    assert found.acceptance is not None
    assert (found.acceptance.accept_length, found.acceptance.source) == (3.0, "/metrics")
    assert found.acceptance.low is None  # a sum tells no spread over requests
    assert found.rungs[0].accept_length is not None
    assert found.rungs[0].accept_length.rounds == (3.0, 3.0)
    half = measured(quiet, (turn(1, counted=told), turn(2)))
    assert half.acceptance is None
    less = measured(quiet, (turn(1, counted=told), turn(2, counted=told.model_copy(update={"requests": 0}))))
    assert less.acceptance is None
    assert "of our 2 requests and 18 tokens it counted only 1 and 18" in less.no_acceptance


def test_goodput_counts_what_keeps_every_limit() -> None:
    slow, late, broken = sample("a/1", chunks=((2.0, 2),)), sample("a/2", first=2.0), sample("a/3", error="no answer")
    answers = [sample(), slow, late, broken]
    assert measured(answers).rungs[0].goodput is None
    found = measured(answers, limits=Limits(ttft=1.0, itl=0.5)).rungs[0].goodput
    assert found is not None
    assert found.value == 1.0
    only = measured(answers, limits=Limits(ttft=1.0)).rungs[0].goodput
    assert only is not None
    assert only.value == 2.0


def test_errors_and_truncated_answers_are_counted() -> None:
    answers = [sample(), sample("a/1", finish="length"), sample("a/2", error="no answer", counters=None, finish="")]
    (rung,) = measured(answers).rungs
    assert (rung.requests, rung.errors, rung.truncated) == (3, 1, 1)
    assert measured(answers, fixed_length=True).rungs[0].truncated == 0


def test_what_the_machines_showed_is_kept() -> None:
    turns = (
        turn(1, client_busy=0.2, watts=100.0, gpu_bytes=5),
        turn(2, client_busy=0.9, watts=300.0, gpu_bytes=7),
    )
    found = measured([sample(), sample(round=2)], turns)
    (rung,) = found.rungs
    assert (rung.client_busy, rung.watts, rung.gpu_bytes) == (0.9, 200.0, 7)
    assert "the load generator took 90% of a core" in found.notes[0]


NOTES = {
    "spread": (sample(tokens_by="spread"), "does not tell how many tokens a chunk brought"),
    "large pieces": (
        sample(chunks=((0.1, 9),), counters=Counters(10, 3, 9, 6)),
        "in 1 of 1 answers more than 8 tokens",
    ),
    "longer": (
        sample(counters=Counters(73, 3, 9, 6), chunks=((0.1, 8),) * 9),
        "1 of 1 answers are told to have more tokens than the 64",
    ),
    "lost": (sample(chunks=((0.2, 2),)), "in 1 of 1 answers the tokens of the chunks are not as many"),
}


@pytest.mark.parametrize("case", NOTES)
def test_what_is_to_be_minded_is_noted(case: str) -> None:
    one, words = NOTES[case]
    assert [words in note for note in measured([one]).notes] == [True]
    assert measured([sample()]).notes == ()


def test_a_length_that_is_to_be_fixed_and_is_not_is_noted() -> None:
    (note,) = measured([sample(), sample("prose/tea")], fixed_length=True, max_tokens=10).notes
    assert note.startswith("2 of 2 answers end before 10 tokens")
    assert measured([sample()], fixed_length=True, max_tokens=9).notes == ()


def test_answers_of_a_single_stream_are_kept_each_text_once() -> None:
    answers = [
        sample(),
        sample(round=2),
        sample(round=2, text="another"),
        sample("a/1", error="none"),
        sample(concurrency=2, text="batched"),
    ]
    turns = (turn(1), turn(2), turn(1, concurrency=2))
    assert measured(answers, turns).answers == {"code/sort": ["an answer", "another"]}
    assert measured(answers, turns, temperature=0.7).answers == {}


def test_a_round_without_a_figure_does_not_become_a_zero() -> None:
    """Where all of a round failed, its latency is not told; acceptance of the others would be another mean."""
    broken = sample(round=2, error="no answer", first=None, chunks=(), counters=None, finish="")
    (rung,) = measured([sample(), broken], (turn(1), turn(2))).rungs
    assert rung.ttft is not None
    assert rung.ttft.p50.rounds == (0.1,)
    assert rung.accept_length is None


def test_a_sample_is_the_same_after_a_file() -> None:
    one = sample(counters=Counters(9, 3, 9, 6, histogram=(0, 1, 1), rank=1))
    assert Sample.from_json(one.to_json()) == one
