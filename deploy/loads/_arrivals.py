"""When the tokens of an answer came, from its chunks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from deploy.engines import Counters
from deploy.engines._counts import count

Arrivals = tuple[float | None, int, tuple[tuple[float, int], ...], str]


def of(chunks: Sequence[tuple[float, int | None, bool]], counters: Counters | None) -> Arrivals:
    """(seconds to the first token, tokens that came with it, (gap, tokens) of each later chunk, who counted them).

    Where the server tells with each chunk how many there are so far, by that; else all tokens spread over the chunks
    that brought text.
    """
    if not chunks:
        return None, 0, (), ""
    counts = [(at, so_far) for at, so_far, _ in chunks if count(so_far)]
    total = counters.generated if counters else None
    told = len(counts) >= sum(text for _, _, text in chunks) and (total is None or counts[-1][1] == total)
    if not told:
        texts = [at for at, _, text in chunks if text]
        total = len(texts) if total is None else total
        counts = [(at, total * number // len(texts)) for number, at in enumerate(texts, 1)]
    steps, seen = [], 0
    last = {at: so_far for at, so_far in counts if so_far is not None}  # what came in one piece came at once
    for at, so_far in last.items():
        if so_far > seen:
            steps.append((at, so_far - seen))
            seen = so_far
    if not steps:
        return chunks[0][0], 0, (), "spread"
    gaps = tuple((at - before, tokens) for (before, _), (at, tokens) in pairwise(steps))
    return steps[0][0], steps[0][1], gaps, "server" if told else "spread"
