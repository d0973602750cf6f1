"""Accept length, by one definition, from counters of each request or of all requests of a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from deploy.engines import Counters, Totals

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
    """The acceptance of all requests together; None if any of them does not tell. Absent is not zero."""
    generated = steps = drafted = accepted = 0
    for counters in requests:
        if counters.steps is None or counters.accepted is None:
            return None
        generated += counters.generated
        steps += counters.steps
        drafted += counters.drafted or 0
        accepted += counters.accepted
    return Acceptance(generated, steps, drafted, accepted) if steps else None


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


def _more(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


def strangers(counted: Totals, own: Sequence[Counters]) -> str:
    """Why what a server counted is not that of our own requests alone; "" where it is.

    A request of somebody else that has not ended shows by its tokens.
    """
    generated = sum(request.generated for request in own)
    if (counted.requests, counted.generated) == (len(own), generated):
        return ""
    return (
        f"others asked meanwhile: the server counted {counted.requests} requests and {counted.generated} tokens, "
        f"of which {len(own)} and {generated} are ours"
    )
