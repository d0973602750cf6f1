"""Accept length, by one definition, from per-request counters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from deploy.engines import Counters

DEAD = 1.08  # below this, chance explains what was accepted (a head of zeros: 1.06): not wired, rather than weak
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
