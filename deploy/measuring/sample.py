"""One request of a measurement, as the load generator saw it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from deploy.engines import Counters


@dataclass(frozen=True)
class Sample:
    """One request and its answer. Seconds are those of the load generator's monotonic clock.

    `chunks` are what came after the first token: (seconds since the chunk before, tokens it brought); one chunk may
    bring several tokens, as a verify step does.
    """

    prompt: str  # its name: class/number
    kind: str  # its class: arithmetic, code, ...
    concurrency: int
    round: int  # from 1; 0 is the warm-up
    started: float  # seconds since the round began
    seconds: float  # from the request to its last token
    first: float | None  # from the request to its first token; None where none came
    first_tokens: int = 0  # tokens that came with the first one
    chunks: tuple[tuple[float, int], ...] = ()
    counters: Counters | None = None
    finish: str = ""  # stop, length, or "" where it did not end
    text: str = ""
    error: str = ""  # why there is no answer
    tokens_by: str = ""  # who counted the tokens of each chunk: server, or spread (the whole over the chunks)

    @property
    def tokens(self) -> int:
        """Tokens generated, as the server counted them; 0 where nothing is told."""
        return self.counters.generated if self.counters else 0

    def to_json(self) -> dict[str, Any]:
        """Seconds to a tenth of a microsecond, which is more than any clock is worth."""
        told = {name: round(value, 7) if isinstance(value, float) else value for name, value in asdict(self).items()}
        return {**told, "chunks": [(round(seconds, 7), tokens) for seconds, tokens in self.chunks]}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Sample:
        """The same again; KeyError, TypeError or ValueError where it is none."""
        told = dict(document)
        counters = told.get("counters")
        if counters:
            histogram = counters.get("histogram")
            counters = Counters(**{**counters, "histogram": None if histogram is None else tuple(histogram)})
        chunks = tuple((float(gap), int(tokens)) for gap, tokens in told.get("chunks", ()))
        return cls(**{**told, "counters": counters or None, "chunks": chunks})
