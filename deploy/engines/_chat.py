"""The OpenAI chat request that every engine here answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deploy.engines import Conversation, Question, Streamed
from deploy.engines._counts import part


def question(model: str, prompt: str, max_tokens: int) -> Question:
    """One user message at temperature 0."""
    return Question(
        "/v1/chat/completions",
        {
            "model": model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": max_tokens,
            "temperature": 0,
        },
    )


def streamed(asked: Conversation, tokens: tuple[str, ...] = (), **more: Any) -> Streamed:
    """The same with whole messages, as a stream; `more` is what an engine adds."""
    body: dict[str, Any] = {
        "model": asked.model,
        "messages": [{"role": role, "content": content} for role, content in asked.messages],
        "max_tokens": asked.max_tokens,
        "temperature": asked.temperature,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if asked.temperature:
        body["seed"] = asked.seed
    return Streamed("/v1/chat/completions", {**body, **more}, tokens)


def delta(chunk: Mapping[str, Any]) -> tuple[str, str]:
    """What a chunk of a streamed answer adds: (thought, said)."""
    added = part(choice(chunk), "delta")
    return _said(added.get("reasoning_content")) or _said(added.get("reasoning")), _said(added.get("content"))


def finished(chunk: Mapping[str, Any]) -> str:
    """Why a streamed answer ends with this chunk: stop, length; "" where it does not."""
    reason = choice(chunk).get("finish_reason")
    return reason if isinstance(reason, str) else ""


def choice(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The first choice; an empty one where the answer has none, or is no chat at all."""
    choices = answer.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else {}


def message(answer: Mapping[str, Any]) -> tuple[str, str]:
    """A whole answer: (thought, said). With a reasoning parser the answer may stand in its thoughts alone."""
    told = part(choice(answer), "message")
    return _said(told.get("reasoning_content")) or _said(told.get("reasoning")), _said(told.get("content"))


def _said(content: Any) -> str:
    """A string, or a list of parts of which some are text; nothing else is said."""
    if isinstance(content, list):
        return "".join(_said(item.get("text")) for item in content if isinstance(item, dict))
    return content if isinstance(content, str) else ""
