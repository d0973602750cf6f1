"""Accept length, by one definition, from counters of each request or of all requests of a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from deploy.engines import Counters, Totals
from deploy.measuring import statistics
from deploy.measuring.measurement import Share
from deploy.measuring.sample import Sample

DEAD = 1.08  # below this, chance explains what was accepted (a head of zeros: 1.06): not wired, rather than weak
WEAK = 1.15  # below this, where the interval reaches 1.00 as well
DEFINITION = "accept length = 1 + accepted drafts / verify steps; 1.00 means that nothing was accepted"


@dataclass(frozen=True)
class Acceptance:
    """Sums over requests, so that a long answer weighs more than a short one."""

    generated: int
    steps: int
    drafted: int
    accepted: int

    @property
    def length(self) -> float:
        """1 + accepted / steps."""
        return 1 + self.accepted / self.steps


def impossible(requests: Iterable[Counters], num_steps: int | None) -> str:
    """Why these counters cannot be true, with the counters; "" where they can.

    In a verify step at most what was drafted is accepted: `num_steps` tokens, where that is known.
    """
    for told in requests:
        if told.steps is None or told.accepted is None:
            continue
        raw = f"{told.accepted} drafts accepted in {told.steps} verify steps"
        if told.drafted is not None and told.accepted > told.drafted:
            return f"{raw}, of {told.drafted} drafted tokens"
        if num_steps is not None and told.accepted > told.steps * num_steps:
            return f"{raw} of {num_steps} drafted tokens each"
    return ""


def over(requests: Iterable[Counters]) -> Acceptance | None:
    """The acceptance of all requests together; None if any of them does not tell. Absent is not zero.

    One whose only token came from the prompt's own pass had no verify step, and may tell none.
    """
    generated = steps = drafted = accepted = 0
    for counters in requests:
        generated += counters.generated
        if counters.generated <= 1 and counters.steps is None:
            continue
        if counters.steps is None or counters.accepted is None:
            return None
        steps += counters.steps
        drafted += counters.drafted or 0
        accepted += counters.accepted
    return Acceptance(generated, steps, drafted, accepted) if steps else None


def shared(samples: Iterable[Sample], num_steps: int | None = None) -> Share | None:
    """The acceptance of these requests, with its interval over prompts: what repeats one is no new witness. No interval
    goes beyond what a step can bring: the drafted tokens, all of them, and one more.
    """
    counts: dict[str, tuple[int, int]] = {}
    requests = 0
    for sample in samples:
        told = sample.counters
        if told and told.steps and told.accepted is not None:
            accepted, steps = counts.get(sample.prompt, (0, 0))
            counts[sample.prompt] = accepted + told.accepted, steps + told.steps
            requests += 1
    if not counts:
        return None
    length, low, high = statistics.share(counts.values())
    high = high if high is None or num_steps is None else min(high, num_steps + 1.0)
    accepted, steps = (sum(part) for part in zip(*counts.values(), strict=True))
    return Share(accept_length=length, low=low, high=high, steps=steps, accepted=accepted, requests=requests)


def positions(requests: Iterable[Counters]) -> tuple[float, ...] | None:
    """How often the 1st, 2nd, ... draft of a verify step was accepted; None where a histogram is missing, or counts
    other steps, or other drafts, than the answer does.
    """
    summed: list[int] = []
    for counters in requests:
        if not counters.steps:
            continue
        if counters.histogram is None or sum(counters.histogram) != counters.steps:
            return None
        if sum(at * count for at, count in enumerate(counters.histogram)) != counters.accepted:
            return None
        summed += [0] * (len(counters.histogram) - len(summed))
        for at, count in enumerate(counters.histogram):
            summed[at] += count
    steps = sum(summed)
    return tuple(sum(summed[at:]) / steps for at in range(1, len(summed))) if steps else None


def between(before: Totals | None, after: Totals | None) -> Totals | None:
    """What a server counted between two looks at it; a counter that was not told both times is not told."""
    if before is None or after is None:
        return None
    return Totals(
        generated=after.generated - before.generated,
        steps=_more(before.steps, after.steps),
        drafted=_more(before.drafted, after.drafted),
        accepted=_more(before.accepted, after.accepted),
        requests=_more(before.requests, after.requests),
    )


def together(parts: Sequence[Totals]) -> Totals:
    """The sum of several times; what one of them does not tell is not told."""
    return Totals(
        generated=sum(part.generated for part in parts),
        steps=_sum([part.steps for part in parts]),
        drafted=_sum([part.drafted for part in parts]),
        accepted=_sum([part.accepted for part in parts]),
        requests=_sum([part.requests for part in parts]),
    )


def _sum(told: Sequence[int | None]) -> int | None:
    return None if None in told else sum(one or 0 for one in told)


def _more(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


def strangers(counted: Totals, own: Sequence[Counters]) -> str:
    """Why a server counted more than our own requests; "" where it did not.

    A request of somebody else that has not ended shows by its tokens.
    """
    generated = sum(request.generated for request in own)
    if (counted.requests or 0) <= len(own) and counted.generated <= generated:
        return ""
    if counted.requests is None:
        return f"others asked meanwhile: the server counted {counted.generated} tokens, of which {generated} are ours"
    return (
        f"others asked meanwhile: the server counted {counted.requests} requests and {counted.generated} tokens, "
        f"of which {len(own)} and {generated} are ours"
    )


def short(counted: Totals, own: Sequence[Counters]) -> str:
    """Why a server that counted less than our own requests tells nothing of them; "" where it did not."""
    generated = sum(request.generated for request in own)
    if counted.generated >= generated and (counted.requests is None or counted.requests >= len(own)):
        return ""
    return (
        f"the server tells no acceptance with its answers, and of our {len(own)} requests and {generated} tokens it "
        f"counted only {counted.requests} and {counted.generated}"
    )
