"""What engines are asked to measure them, and what they count of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from deploy import engines
from deploy.engines import Conversation, Totals
from deploy.errors import ConfigError

SGLANG_LABELS = 'model_name="tiny",is_streaming="{}"'.format
COUNTED = [  # without a draft, others' requests show all the same
    ("llamacpp", "llamacpp:tokens_predicted_total 3\n", Totals(3, None, None, None)),
    ("vllm", 'vllm:generation_tokens_total{engine="0"} 3.0\n', Totals(3, None, None, None)),
    (
        "sglang",  # as 0.5.23 writes them
        (
            f"sglang:generation_tokens_total{{{SGLANG_LABELS('true')}}} 64.0\n"
            f"sglang:generation_tokens_total{{{SGLANG_LABELS('false')}}} 8.0\n"
            f"sglang:num_requests_total{{{SGLANG_LABELS('true')}}} 2.0\n"
            f"sglang:num_requests_total{{{SGLANG_LABELS('false')}}} 1.0\n"
            'sglang:spec_verify_calls_total{model_name="tiny"} 20.0\n'
        ),
        Totals(72, 20, None, None, requests=3),
    ),
]


@pytest.mark.parametrize(("name", "metrics", "totals"), COUNTED, ids=[case[0] for case in COUNTED])
def test_what_a_server_counts_without_acceptance_is_told(name, metrics, totals):
    assert engines.load(name).totals(metrics) == totals


HISTOGRAMS: list[tuple[Any, tuple[int, ...] | None]] = [
    ([9, 0, 2], (9, 0, 2)), ([], None), ([1, None], None), ([1, -1], None), ("abc", None), (None, None),
]  # fmt: skip


@pytest.mark.parametrize(("told", "histogram"), HISTOGRAMS)
@pytest.mark.parametrize("name", ["spec_correct_drafts_histogram", "spec_accept_histogram"])
def test_sglangs_histogram_of_accepted_drafts_is_read(name, told, histogram):
    found = engines.load("sglang").counters({"meta_info": {"completion_tokens": 9, name: told, "dp_rank": 3}})
    assert found is not None
    assert (found.histogram, found.rank) == (histogram, 3)


TALK = Conversation("tiny", (("system", "Be brief."), ("user", "Hi")), 7)
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
LIMITS = {"model": "tiny", "messages": MESSAGES, "max_tokens": 7, "temperature": 0.0, "stream": True}
EACH = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
USAGE = ("usage", "completion_tokens")
CHATS: list[tuple[str, Conversation, dict[str, Any], tuple[str, ...]]] = [
    ("command", TALK, {"stream_options": {"include_usage": True}}, ()),
    (
        "llamacpp",
        TALK,
        {"stream_options": {"include_usage": True}, "cache_prompt": False, "timings_per_token": True},
        ("timings", "predicted_n"),
    ),
    ("vllm", TALK, EACH, USAGE),
    ("vllm", replace(TALK, fixed_length=True), {**EACH, "ignore_eos": True}, USAGE),
    ("sglang", TALK, {**EACH, "return_spec_tokens_details": True}, USAGE),
    ("sglang", replace(TALK, version="0.5.20"), {**EACH, "return_spec_tokens_details": True}, USAGE),
    ("sglang", replace(TALK, rank=1), {**EACH, "return_spec_tokens_details": True, "routed_dp_rank": 1}, USAGE),
    ("vllm", replace(TALK, temperature=0.5, seed=3), {**EACH, "temperature": 0.5, "seed": 3}, USAGE),
]


@pytest.mark.parametrize(("name", "asked", "body", "tokens"), CHATS)
def test_a_measured_chat_is_streamed_with_all_that_the_engine_tells(name, asked, body, tokens):
    found = engines.load(name).streamed(asked)
    assert (found.path, dict(found.body), found.tokens) == ("/v1/chat/completions", {**LIMITS, **body}, tokens)


@pytest.mark.parametrize(
    ("version", "wanted"),
    [("0.5.19", True), ("0.5.8", True), ("0.5.9.post1", True), ("0.5.20", False), ("0.5.23", False), ("0.6.0", False),
     ("1.0.0", False), (None, False), ("", False), ("main", False)],
)  # fmt: skip
def test_an_older_sglang_streams_its_counters_on_its_native_route_alone(version, wanted):
    sglang = engines.load("sglang")
    assert sglang.wants_ids(version) is wanted
    plain = sglang.streamed(replace(TALK, version=version))
    assert plain.path == ("/generate" if wanted else "/v1/chat/completions")
    if wanted:
        asked = sglang.streamed(replace(TALK, version=version, ids=(1, 2), fixed_length=True))
        parameters = {"max_new_tokens": 7, "temperature": 0.0}
        assert plain.body == {"text": "Be brief.\nHi", "sampling_params": parameters, "stream": True}
        more = {"sampling_params": {**parameters, "ignore_eos": True}, "stream": True}
        assert (asked.body, asked.tokens) == ({"input_ids": [1, 2], **more}, ("meta_info", "completion_tokens"))


def test_a_plain_command_is_not_asked_for_what_the_standard_does_not_have():
    with pytest.raises(ConfigError, match="fixed length"):
        engines.load("command").streamed(replace(TALK, fixed_length=True))
