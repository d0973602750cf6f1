"""Whether numbers are those of the run, of nothing else, and measured by a clock that ran: else none is stored."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from deploy.measuring import acceptance, summary
from deploy.measuring.measurement import Turn
from deploy.measuring.sample import Sample

ANEW = "the server was started anew meanwhile"
JUMPED = 0.5  # seconds in a round; a clock that is only kept right (NTP) is slewed by at most 0.5 ms a second


def against(turns: Sequence[Turn], samples: Sequence[Sample]) -> str:
    """Why these rounds tell nothing of the run; "" where they do."""
    return hopeless(turns, samples, len(samples)) or restarted(turns) or strangers(turns, samples)


def exchanged(before: Collection[tuple[int, int]], after: Collection[tuple[int, int]]) -> str:
    """Why who answers now, as (pid, start), is not who answered before; "" where it is, or cannot be seen."""
    return f"{ANEW}: other processes answer" if before and after and set(before).isdisjoint(after) else ""


def restarted(turns: Sequence[Turn]) -> str:
    """Why it was not one and the same server all the time, by counters that only grow; "" where none went back."""
    for turn in turns:
        told = turn.counted.model_dump().values() if turn.counted else ()
        if any(moved is not None and moved < 0 for moved in told):
            return f"{ANEW}: in round {turn.number} at concurrency {turn.concurrency} its counters went back"
    return ""


def hopeless(turns: Sequence[Turn], samples: Sequence[Sample], planned: int) -> str:
    """Why the first rounds show already that all `planned` requests would tell nothing; "" where they do not."""
    errors = sum(bool(sample.error) for sample in samples)
    failed = summary.failed(samples) if errors > summary.WRONG * planned else ""
    return failed or next(filter(None, map(_jumped, turns)), "")


def strangers(turns: Sequence[Turn], samples: Sequence[Sample]) -> str:
    """Why the server did not work for us alone, by its own counters; "" where it did, or does not tell.

    All rounds are taken together: what is counted late is counted in the round after.
    """
    told = [turn for turn in turns if turn.counted]
    rounds = {(turn.concurrency, turn.number) for turn in told}
    ours = [sample for sample in samples if (sample.concurrency, sample.round) in rounds]
    own = [sample.counters for sample in ours if sample.counters and not sample.error]
    counted = [turn.counted for turn in told if turn.counted]
    if not counted:
        return ""
    whole = acceptance.together([summary.totals(one) for one in counted])
    if len(own) == len(ours):
        return acceptance.strangers(whole, own)
    # of a request that failed, the server may have counted nothing, a part, or all
    more = (whole.requests or 0) - len(ours)
    return f"others asked meanwhile: the server counted {more} requests more than ours" if more > 0 else ""


def _jumped(turn: Turn) -> str:
    if abs(turn.clock_jump) <= JUMPED:
        return ""
    return (
        f"the host's clock jumped by {turn.clock_jump:+.1f} s in round {turn.number} at concurrency "
        f"{turn.concurrency}: what was measured by it is not to be trusted"
    )
