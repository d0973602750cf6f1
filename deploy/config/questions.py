"""What a profile asks of a server once it runs: sensible answers, and how well and how fast it gives them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from deploy.config.schema import Part
from deploy.config.values import Count, Regex, Seconds, Text, Word


class Asked(Part):
    """A further question of the smoke test."""

    ask: Text = Field(description="The question.")
    expect: Regex = Field(default="", description="A regular expression, searched in its answer; any answer if empty.")


class Smoke(Part):
    """Questions that show that it answers sensibly; the first one is asked a second time, as a stream."""

    ask: Text = Field(default="Hello, what is 2+2?", description="The question.")
    expect: Regex = Field(default="4|four", description="A regular expression, searched in the answer.")
    more: list[Asked] = Field(default_factory=list, description="Further questions, each {ask: ..., expect: ...}.")
    max_tokens: Count = Field(default=100, description="Tokens an answer may have.")
    timeout: Seconds = Field(default=60.0, description="Seconds for each answer.")


class Slo(Part):
    """What an answer must keep to count as good."""

    ttft: Seconds | None = Field(default=None, description="Seconds to the first token, at most.")
    itl: Seconds | None = Field(default=None, description="Seconds between two tokens, at most, over the answer.")


class Bench(Part):
    """What the server is measured with: rounds of the same prompts, at one concurrency after the other."""

    prompts: Word | list[Text] = Field(
        default="mixed",
        description="A set of prompts that the tool has (mixed: arithmetic, code, prose, reasoning; or one of these), "
        "a .jsonl file of yours, or the prompts themselves; an empty list: nothing is measured.",
    )
    max_tokens: Count = Field(default=64, description="Tokens generated for each.")
    fixed_length: bool = Field(
        default=False, description="Whether answers go on past their end, so that all are max_tokens long."
    )
    concurrency: list[Count] = Field(
        default_factory=lambda: [1], description="Requests at once, one rung after another."
    )
    rounds: Count = Field(default=8, description="Rounds at each concurrency; their spread is the noise band.")
    most_rounds: Count = Field(
        default=16, description="Rounds at most, where a gate's bar lies within the noise band of fewer."
    )
    spread: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0,
        description="By how much a figure differs from one start of a server to the next, beside its rounds, where you "
        "know it: 0.02. Gates that compare with another run add it to the noise.",
    )
    temperature: Annotated[float, Field(ge=0, le=2)] = Field(default=0.0, description="0: the most likely token.")
    seed: Annotated[int, Field(ge=0)] = Field(default=0, description="For what is drawn: the order of prompts.")
    load: Word = Field(default="own", description="The load generator: own, bench_serving, ...")
    slo: Slo = Field(default=Slo(), description="What a request must keep to count for goodput.")
    timeout: Seconds = Field(default=120.0, description="Seconds for each answer.")
