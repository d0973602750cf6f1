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
