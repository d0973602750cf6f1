"""What SGLang is asked to measure it, and the counters in its answers and in its /metrics."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from deploy.engines import Conversation, Counters, Question, Streamed, Totals, _chat
from deploy.engines._counts import count, part
from deploy.engines._prometheus import sums

STREAM: Mapping[str, Any] = MappingProxyType({"return_spec_tokens_details": True})  # `meta_info` is refused in a stream


def measured(model: str, prompt: str, max_tokens: int) -> tuple[Question, ...]:
    """A chat, whose answer carries `meta_info` from 0.5.20 on; the native route, which has no chat template, before."""
    asked = _chat.question(model, prompt, max_tokens)
    parameters = {"max_new_tokens": max_tokens, "temperature": 0}
    return (
        Question(asked.path, {**asked.body, "return_meta_info": True}),
        Question("/generate", {"text": prompt, "sampling_params": parameters}),
    )


def wants_ids(version: str | None) -> bool:
    """A chat that is streamed tells its counters since 0.5.20 (`return_spec_tokens_details`)."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", version or "")
    return found is not None and tuple(map(int, found.groups())) < (0, 5, 20)


def streamed(asked: Conversation) -> Streamed:
    """A chat with its usage in every chunk and `sglext` at its end; of an older one its native route, which has
    `meta_info` in every chunk, and no chat template.
    """
    if asked.ids is not None or wants_ids(asked.version):
        return _native(asked)
    more: dict[str, Any] = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}, **STREAM}
    if asked.fixed_length:
        more["ignore_eos"] = True
    if asked.rank is not None:
        more["routed_dp_rank"] = asked.rank
    if asked.salt:
        more["cache_salt"] = asked.salt
    return _chat.streamed(asked, ("usage", "completion_tokens"), **more)


def _native(asked: Conversation) -> Streamed:
    parameters: dict[str, Any] = {"max_new_tokens": asked.max_tokens, "temperature": asked.temperature}
    if asked.fixed_length:
        parameters["ignore_eos"] = True
    if asked.temperature:
        parameters["sampling_seed"] = asked.seed
    told = {"text": "\n".join(content for _, content in asked.messages)}
    prompt: dict[str, Any] = told if asked.ids is None else {"input_ids": list(asked.ids)}
    body = {**prompt, "sampling_params": parameters, "stream": True}
    return Streamed("/generate", body, ("meta_info", "completion_tokens"))


def counters(answer: Mapping[str, Any]) -> Counters | None:
    """From `meta_info`, or a stream's `sglext`; the spec_* keys are absent where nothing was verified, and were renamed
    at 0.5.12.
    """
    meta = part(answer, "meta_info") or part(_chat.choice(answer), "meta_info") or _streamed(answer)
    generated = count(meta.get("completion_tokens"))
    if generated is None:
        return None
    accepted = meta.get("spec_num_correct_drafts", meta.get("spec_accept_token_num"))
    drafted = meta.get("spec_num_proposed_drafts", meta.get("spec_draft_token_num"))
    return Counters(
        generated,
        steps=count(meta.get("spec_verify_ct")),
        drafted=count(drafted),
        accepted=count(accepted),
        histogram=_histogram(meta.get("spec_correct_drafts_histogram", meta.get("spec_accept_histogram"))),
        rank=count(meta.get("dp_rank")),
    )


def _histogram(told: Any) -> tuple[int, ...] | None:
    """In how many steps 0, 1, 2, ... drafts were kept; None where it is none, or not told."""
    if not isinstance(told, list) or not told or None in (counts := [count(value) for value in told]):
        return None
    return tuple(value for value in counts if value is not None)


def _streamed(answer: Mapping[str, Any]) -> dict[str, Any]:
    """A whole answer with nothing but `usage` is one of a server that did not know `return_meta_info`."""
    if answer.get("object") != "chat.completion.chunk":
        return {}
    told = part(part(answer, "sglext"), "spec_tokens_details")
    return {**told, "completion_tokens": part(answer, "usage").get("completion_tokens")}


def totals(metrics: str) -> Totals | None:
    """Whose requests it answered, and in how many verify steps (`observe_one_finished_request`,
    observability/metrics_collector.py in 0.5.23): of each when it has ended. It counts no accepted drafts: its
    `spec_accept_length` is a gauge of the last 40 decode steps, which tells nothing of a short run.
    """
    found = sums(metrics)
    generated = found.get("sglang:generation_tokens")
    if generated is None:
        return None
    steps, requests = found.get("sglang:spec_verify_calls"), found.get("sglang:num_requests")
    return Totals(generated, steps=steps, drafted=None, accepted=None, requests=requests)
