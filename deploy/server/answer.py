"""A streamed answer as it grows, and what it cost: tokens, seconds, acceptance; nothing is guessed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from deploy.engines import Question, _chat
from deploy.host import hide
from deploy.measuring import acceptance
from deploy.plan import Node


def question(node: Node, prompt: str, *, system: str, max_tokens: int, temperature: float) -> Question:
    """A chat that is streamed, with its counters at the end where the engine tells them."""
    asked = node.engine.chat(node.served_name, prompt, max_tokens)
    first = [{"role": "system", "content": system}] if system else []
    more = {
        "messages": [*first, *asked.body["messages"]],
        "temperature": temperature,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return Question(asked.path, {**asked.body, **more, **node.engine.STREAM})


class Answer:
    """What came so far, without what is `hidden`. Seconds are those of this machine's clock, since the question was
    sent.
    """

    def __init__(self, hidden: Iterable[str] = ()) -> None:
        forms = hide.forms(hidden)
        self._thinking, self._saying = hide.Flow(forms), hide.Flow(forms)
        self.thought = self.said = self.finish_reason = ""
        self.first: float | None = None  # seconds to the first word
        self.last = 0.0
        self._told: dict[str, Any] = {}
        self._began = time.monotonic()

    def add(self, chunk: Mapping[str, Any]) -> tuple[str, str]:
        """What the chunk adds: (thought, said)."""
        thought, said = _chat.delta(chunk)
        self.last = time.monotonic() - self._began
        if self.first is None and (thought or said):
            self.first = self.last
        self.finish_reason = _chat.finished(chunk) or self.finish_reason
        self._told |= {key: value for key, value in chunk.items() if value is not None}
        return self._keep(self._thinking.add(thought), self._saying.add(said))

    def end(self) -> tuple[str, str]:
        """The rest, which might have become more: (thought, said)."""
        return self._keep(self._thinking.end(), self._saying.end())

    def _keep(self, thought: str, said: str) -> tuple[str, str]:
        self.thought += thought
        self.said += said
        return thought, said

    def measured(self, node: Node) -> dict[str, Any]:
        """Counters as JSON; None is what the server does not tell, and `why` says so of the acceptance."""
        told = node.engine.counters(self._told)
        wrong = acceptance.impossible([told], node.num_steps) if told else ""
        found = acceptance.over([told]) if told and not wrong else None
        return {
            "tokens": told.generated if told else None,
            "seconds": round(self.last, 4),
            "tokens_per_second": round(told.generated / self.last, 1) if told and self.last else None,
            "time_to_first_token": None if self.first is None else round(self.first, 4),
            "accept_length": round(found.length, 3) if found else None,
            "accepted": found.accepted if found else None,
            "steps": found.steps if found else None,
            "why": None if found else wrong or "the server tells no acceptance",
        }


def line(measured: Mapping[str, Any]) -> str:
    """The same in words."""
    tokens, first = measured["tokens"], measured["time_to_first_token"]
    words = [f"{'tokens not told' if tokens is None else f'{tokens} tokens'} in {measured['seconds']:.2f} s"]
    if tokens is not None:
        words.append(f"{measured['tokens_per_second']} tokens/s")
    if first is not None:
        words.append(f"first after {first:.3f} s")
    if measured["accept_length"] is None:
        words.append(f"accept length not measured: {measured['why']}")
    else:
        counted = f"{measured['accepted']} drafts kept in {measured['steps']} steps"
        words.append(f"accept length {measured['accept_length']:.2f} ({counted})")
    return ", ".join(words)
