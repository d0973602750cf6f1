"""The OpenAI chat request that every engine here answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deploy.engines import Question


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


def text(answer: Mapping[str, Any]) -> str:
    """What was said; with a reasoning parser the answer may stand in `reasoning_content`."""
    choices = answer.get("choices") or [{}]
    message = choices[0].get("message") or {}
    parts = (message.get("reasoning_content"), message.get("content"))
    return "\n".join(part for part in parts if part)
