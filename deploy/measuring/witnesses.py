"""What others say of the acceptance that the answers' own counters told: the engine's log, its metrics. Pure.

A disagreement is shown, never averaged. Each witness is held against our own count only as exactly as it can be: a line
of SGLang's log is of 40 steps, some of which may be those of another request; a counter of vLLM counts exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from deploy.engines import Counters, Totals
from deploy.engines._written import Written
from deploy.findings import Finding
from deploy.measuring import acceptance
from deploy.measuring.acceptance import Acceptance
from deploy.measuring.measurement import Measurement, Witness

Line = Mapping[str, str | None]

ROUNDED = 0.005  # of a figure with two places
LOG = "the log"
CLOSE = 0.05  # as a share: what llama.cpp's steps, told by what was generated, may be wrong by
RATES: Mapping[str, Callable[[float, int], float]] = {  # of a dead draft of 5 tokens 0.20 and 0.00
    "accept len / draft tokens, as up to 0.5.10": lambda length, tokens: length / tokens,
    "(accept len - 1) / (draft tokens - 1), as since 0.5.11": lambda length, tokens: (length - 1) / (tokens - 1),
}


@dataclass(frozen=True)
class Own:
    """The counters of all answers of the measured time, and how many were asked for at once, at most."""

    answers: Sequence[Counters]
    streams: int = 1


def of_log(how: Written, lines: Iterable[str], own: Own, tokens: int | None) -> Witness | None:
    """What the log's lines of the measured time say; None where nothing can be said.

    `how.every` is as it was really set; `tokens` are those of a verify step (num_draft_tokens).
    """
    ours = acceptance.over(own.answers)
    found = [match.groupdict() for line in lines if (match := how.line.search(line))]
    if ours is None or not found:
        return None
    if not how.every:
        return _by_counts(found, ours)
    return _by_steps(how.every, found, ours, 2 * (how.every - 1) * own.streams + len(own.answers), tokens)


def _by_steps(every: int, found: Sequence[Line], ours: Acceptance, apart: int, tokens: int | None) -> Witness:
    """Each line weighs as the steps that it is of. `apart` steps at most are in only one of the counts: those of a line
    at either end of the time, and one a request, which is run ahead when its answer has ended already. Where each step
    has a line, they are as many as the lines are more.
    """
    weights = [int(one["streams"] or 1) for one in found]
    lengths = [float(one["length"] or 0) for one in found]
    length = sum(w * one for w, one in zip(weights, lengths, strict=True)) / sum(weights)
    most, steps = (tokens or 4) - 1, every * sum(weights)
    if every == 1:
        apart = min(apart, abs(steps - ours.steps))
    allowed = ROUNDED + most * apart / max(ours.steps, steps)
    agrees = None if allowed >= most / 2 else abs(length - ours.length) <= allowed
    exactly = "too few to be compared" if agrees is None else f"it may differ by {allowed:.3f}"
    note = f"{steps} verify steps in {len(found)} lines, the answers' {ours.steps}: {exactly}{_rate(found, tokens)}"
    return Witness(source=LOG, accept_length=round(length, 3), agrees=agrees, note=note)


def _rate(found: Sequence[Line], tokens: int | None) -> str:
    """By which formula its accept rate is made: the two tell 0.20 and 0.00 of the same dead draft."""
    told = [(float(one["length"] or 0), float(rate)) for one in found if (rate := one.get("rate"))]
    if not told or not tokens or tokens < 2:
        return ""
    fits = [
        name
        for name, formula in RATES.items()
        if all(abs(formula(n, tokens) - rate) <= 2 * ROUNDED for n, rate in told)
    ]
    last = f"{told[-1][1]:.2f}"
    return f"; its accept rate {last} is {' or '.join(fits)}" if fits else f"; its accept rate {last} fits no formula"


def _by_counts(found: Sequence[Line], ours: Acceptance) -> Witness:
    accepted, drafted = (sum(int(one[name] or 0) for one in found) for name in ("accepted", "drafted"))
    steps = sum(_steps(one, drafted, ours) for one in found)
    length = round(1 + accepted / steps, 3) if steps else None
    if drafted != ours.drafted:
        note = f"its lines are of {drafted} drafted tokens, the answers of {ours.drafted}: not of the same time"
        return Witness(source=LOG, accept_length=length, agrees=None, note=note)
    note = f"{accepted} of {drafted} drafted tokens accepted{_fewer(round(steps), ours)}"
    return Witness(source=LOG, accept_length=length, agrees=accepted == ours.accepted, note=note)


def _fewer(steps: int, ours: Acceptance) -> str:
    """Where an answer tells no steps, they are reckoned from its tokens, at most one a request too many."""
    return "" if steps >= ours.steps else f"; the answers' {ours.steps} steps have at most one a request too many"


def _steps(one: Line, drafted: int, ours: Acceptance) -> float:
    """Of a line, by its length; where nothing was accepted, by how many were drafted in a step of ours."""
    accepted, length = int(one["accepted"] or 0), float(one["length"] or 1)
    if accepted and length > 1:
        return round(accepted / (length - 1))
    return int(one["drafted"] or 0) * ours.steps / drafted if drafted else 0


def of_counters(counted: Totals | None, own: Own, path: str | None) -> Witness | None:
    """What the server's counters moved by in the measured time, where these were our requests alone."""
    ours = acceptance.over(own.answers)
    if counted is None or ours is None or not counted.steps or path is None:
        return None
    if counted.requests is not None and (
        acceptance.strangers(counted, own.answers) or acceptance.short(counted, own.answers)
    ):
        return None
    if counted.accepted is None:
        return _by_tokens(counted.generated, counted.steps, ours, path)
    length = 1 + counted.accepted / counted.steps
    most = 1 + ours.accepted / max(1, ours.steps - len(own.answers))
    agrees = (1 - CLOSE) * ours.length <= length <= (1 + CLOSE) * most
    note = f"{counted.accepted} accepted in {counted.steps} verify steps{_fewer(counted.steps, ours)}"
    return Witness(source=path, accept_length=round(length, 3), agrees=agrees, note=note)


def _by_tokens(generated: int, steps: int, ours: Acceptance, path: str) -> Witness:
    """Tokens for each step, which counts the first token of an answer, that of its prompt's own pass."""
    told, mine = generated / steps, ours.generated / ours.steps
    note = f"tokens / verify steps, so it counts each answer's first token; the answers, counted so: {mine:.3f}"
    return Witness(source=path, accept_length=round(told, 3), agrees=abs(told - mine) <= ROUNDED * mine, note=note)


def counts_first(how: Written, own: Own) -> Witness | None:
    """The engine's own figure, which is shown and not used."""
    ours = acceptance.over(own.answers)
    if ours is None or not how.counts_first:
        return None
    note = "the engine's own figure counts each answer's first token, which no draft has a part in"
    return Witness(source=how.counts_first, accept_length=round(ours.generated / ours.steps, 3), agrees=None, note=note)


def merged(earlier: Sequence[Witness], later: Sequence[Witness]) -> tuple[Witness, ...]:
    """Of two times: the later word of each source, but where the earlier one disagreed."""
    against = [one for one in earlier if one.agrees is False]
    kept = {one.source: one for one in (*earlier, *later, *against)}
    return tuple(kept.values())


def findings(measured: Measurement) -> Iterator[Finding]:
    """A disagreement is no failure, and both are shown: which one is wrong cannot be told from here."""
    if measured.acceptance is None:
        return
    for one in measured.witnesses:
        if one.agrees is False:
            told = "nothing" if one.accept_length is None else f"{one.accept_length:.2f}"
            ours = f"{measured.acceptance.accept_length:.2f}"
            what = f"{one.source} says accept length {told}, the answers' own counters {ours}"
            remedy = "the answers' counters are what is used; did somebody else ask meanwhile, or is a counter broken?"
            yield Finding("bench", "WARN", what, one.note, remedy)
