"""What a load generator makes of an answer's pieces and their times, and what it counts in them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from deploy import engines
from deploy.engines import Counters
from deploy.host.load_events import read_stream
from deploy.loads import _arrivals, own
from deploy.measuring.sample import Sample
from tests import loads
from tests.scripted_server import event, last, usage


def heard(*pieces: tuple[float, bytes], engine: str = "vllm") -> Sample:
    """The sample of an answer whose pieces came so many seconds after its request."""
    tokens = engines.load(engine).streamed(engines.Conversation("tiny", (), 8)).tokens
    found = read_stream([(100 + at, data) for at, data in pieces], 100.0, list(tokens))
    asked = loads.asked()
    counters = engines.load(engine).counters(found["told"])
    return own.sample({**found, "started": 0.0, "ended": 9.0}, asked.prompts[0], asked, counters)


def test_a_chunk_may_bring_several_tokens() -> None:
    """As a verify step does: they are counted by what the server says, not by its chunks."""
    one = heard(
        (0.1, event(**usage(0))),
        (0.5, event("a", **usage(1))),
        (0.6, event("bcd", **usage(4))),
        (0.8, event("ef", **usage(6))),
        (0.9, event("g", "length")),
        (1.0, last(7)),
    )
    assert (one.first, one.first_tokens) == (0.5, 1)
    assert [(round(gap, 6), tokens) for gap, tokens in one.chunks] == [(0.1, 3), (0.2, 2), (0.2, 1)]
    assert (one.tokens, one.tokens_by, one.finish, one.text, one.seconds) == (7, "server", "length", "abcdefg", 1.0)


def test_tokens_that_nobody_counts_are_spread_over_the_chunks_and_that_is_told() -> None:
    pieces = [(0.1, event()), (0.2, event("a")), (0.3, event("b")), (0.4, event("c", "stop")), (0.5, last(7))]
    one = heard(*pieces, engine="command")
    assert one.seconds == pytest.approx(0.4), "what only counts is no token"
    assert (one.first, one.first_tokens, [tokens for _, tokens in one.chunks]) == (0.2, 2, [2, 3])
    assert one.tokens_by == "spread"


def test_what_came_in_one_piece_came_at_once() -> None:
    together = event("b", **usage(2)) + event("c", **usage(3)) + event("d", **usage(4))
    one = heard((0.1, event("a", **usage(1))), (0.3, together), (0.4, event(finish="stop") + last(4)))
    assert (one.first_tokens, [(round(gap, 6), tokens) for gap, tokens in one.chunks]) == (1, [(0.2, 3)])


def test_thoughts_are_tokens_too() -> None:
    thought = b"data: " + json.dumps({"choices": [{"delta": {"reasoning_content": "hm "}}]}).encode() + b"\n\n"
    one = heard((0.1, thought), (0.3, event("4", "stop") + last(2)), engine="command")
    assert (one.text, one.tokens, one.first, one.first_tokens, len(one.chunks)) == ("hm 4", 2, 0.1, 1, 1)


def test_llamacpps_timings_count_tokens_and_drafts() -> None:
    timings = {"predicted_n": 5, "draft_n": 6, "draft_n_accepted": 3}
    one = heard(
        (0.1, event("a", timings={"predicted_n": 1})),
        (0.2, event("bc", timings={"predicted_n": 4})),
        (0.3, event("", "stop", timings=timings)),
        engine="llamacpp",
    )
    assert (one.first_tokens, [tokens for _, tokens in one.chunks], one.tokens_by) == (1, [3, 1], "server")
    assert one.counters == Counters(5, 2, 6, 3)


def test_sglangs_native_route_tells_its_text_whole_each_time() -> None:
    def told(text: str, tokens: int, **more: Any) -> bytes:
        return (
            b"data: "
            + json.dumps({"text": text, "meta_info": {"completion_tokens": tokens, **more}}).encode()
            + b"\n\n"
        )

    spec = {"spec_verify_ct": 2, "spec_accept_token_num": 2, "spec_draft_token_num": 6, "dp_rank": 1}
    pieces = [(100.2, told("Par", 1)), (100.3, told("Paris", 3))]
    end = told("Paris.", 5, finish_reason={"type": "stop", "matched": 2}, **spec) + b"data: [DONE]\n\n"
    found = read_stream([*pieces, (100.4, end)], 100.0, ["meta_info", "completion_tokens"])
    assert (found["text"], found["finish"], found["error"]) == ("Paris.", "stop", "")
    counters = engines.load("sglang").counters(found["told"])
    assert counters == Counters(5, 2, 6, 2, rank=1)
    at = [(round(gap, 6), tokens) for gap, tokens in _arrivals.of(found["chunks"], counters)[2]]
    assert at == [(0.1, 2), (0.1, 2)]


Chunks = list[tuple[float, int | None, bool]]
ARRIVALS: dict[str, tuple[Chunks, int | None, tuple[float | None, int, list[int], str]]] = {
    "nothing came": ([], None, (None, 0, [], "")),
    "counted": ([(1, 1, True), (2, 3, True)], 3, (1, 1, [2], "server")),
    "counted without a total": ([(1, 1, True), (2, 3, True)], None, (1, 1, [2], "server")),
    "not counted at all": ([(1, None, True), (2, None, True)], None, (1, 1, [1], "spread")),
    "fewer than it says at the end": ([(1, 1, True), (2, 3, True)], 4, (1, 2, [2], "spread")),
    "a chunk is not counted": ([(1, 1, True), (2, None, True), (3, 3, True)], 3, (1, 1, [1, 1], "spread")),
    "none was generated": ([(1, None, True)], 0, (1, 0, [], "spread")),
    "more chunks than tokens": ([(1, None, True), (2, None, True), (3, None, True)], 2, (2, 1, [1], "spread")),
    "a count that falls": ([(1, 2, True), (2, 1, True), (3, 4, True)], 4, (1, 2, [2], "server")),
    "counts without a word": ([(1, 1, False), (2, 2, True)], 2, (1, 1, [1], "server")),
    "counts alone, and not all": ([(1, 1, False)], 2, (1, 0, [], "spread")),
}


@pytest.mark.parametrize("case", ARRIVALS)
def test_tokens_are_given_to_chunks(case: str) -> None:
    chunks, total, (first, first_tokens, later, by) = ARRIVALS[case]
    counters = None if total is None else Counters(total, None, None, None)
    found = _arrivals.of(chunks, counters)
    assert (found[0], found[1], [tokens for _, tokens in found[2]], found[3]) == (first, first_tokens, later, by)
    assert all(gap > 0 for gap, _ in found[2])
