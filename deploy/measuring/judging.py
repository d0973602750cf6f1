"""Each gate against what was measured: it holds, it fails, or the noise hides which.

The band is that of the difference between what was measured and the bar, which has noise of its own where it is a
multiple of another measurement. Looking several times, with more rounds each, must not add up chances to be wrong: each
look is given its part of them (Bonferroni), so that all of them together pass or fail a run by noise in `CHANCE`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from deploy.config.gates import Gate, split
from deploy.measuring import statistics
from deploy.measuring.measurement import Figure, Measurement
from deploy.measuring.statistics import Noise

CHANCE = 0.05  # that noise fails what is as good as its bar, or passes what is as bad, over all looks
NO_BASELINE = "there is no baseline: deploy bench --baseline measures it"
EXACT = "differences"  # a count, which has no noise
KNOWN = 1e6  # degrees of freedom of a spread that is said, and not estimated
UNTOLD = 8  # degrees of freedom of a figure that tells its band and not its rounds

State = Literal["holds", "fails", "within", "alone", "unmeasured"]
HOLDS: Mapping[State, bool | None] = {"holds": True, "alone": True, "fails": False, "within": None, "unmeasured": None}


@dataclass(frozen=True)
class Judged:
    """One gate, what was measured, and what comes of it.

    `margin` is half the band: so far may noise have moved what was measured and the bar from each other.
    """

    name: str
    wanted: str
    state: State
    measured: float | None = None
    bar: float | None = None
    margin: float | None = None
    rounds: int = 0
    run: str = ""  # whose figure the bar is a multiple of
    why: str = ""

    @property
    def holds(self) -> bool | None:
        """None: it cannot be told."""
        return HOLDS[self.state]

    def line(self) -> str:
        """In words: the value with its band, what is wanted, and why it cannot be told, where it cannot."""
        value = "not measured" if self.measured is None else number(self.measured)
        noise = f" ± {number(self.margin, 2)}" if self.margin else ""
        after = f" ({self.rounds} round{'s' if self.rounds > 1 else ''})" if noise and self.rounds else ""
        bar = f" = {number(self.bar)}, of run {self.run}" if self.run and self.bar is not None else ""
        return f"{self.name} {value}{noise}{after} {self.wanted}{bar}{f' ({self.why})' if self.why else ''}"

    def to_json(self) -> dict[str, Any]:
        """For verdict.json."""
        told = {**asdict(self), "holds": self.holds}
        return {name: value for name, value in told.items() if value != ""}


def number(value: float, digits: int = 4) -> str:
    """So many digits that count, and never an exponent: 0.2666, 3.6, 21968."""
    return f"{value:.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"


def looks(rounds: int, most: int) -> tuple[int, ...]:
    """After how many rounds it is looked: each time twice as many, and `most` of them at last."""
    found = [rounds]
    while found[-1] < most:
        found.append(min(2 * found[-1], most))
    return tuple(found)


def confidence(times: int) -> float:
    """Of the band at each of so many looks."""
    return 1 - 2 * CHANCE / times


def judge(
    gates: Mapping[str, Gate], measured: Measurement | None, times: int, spread: float = 0.0
) -> tuple[Judged, ...]:
    """Every gate, in its order, at one of `times` looks; `spread`: of starts of the same server, relative."""
    return tuple(_one(name, wanted, measured, times, spread) for name, wanted in gates.items())


def undecided(judged: Iterable[Judged]) -> bool:
    """Whether more rounds may tell: the noise hides what comes of a gate, and none has failed."""
    states = {one.state for one in judged}
    return "within" in states and "fails" not in states


def _one(name: str, wanted: Gate, measured: Measurement | None, times: int, spread: float) -> Judged:
    figure = measured.figures().get(name) if measured else None
    if measured is None or figure is None:
        return Judged(name, str(wanted), "unmeasured", why=_unmeasured(name, measured))
    told = Judged(name, str(wanted), "within", figure.value, rounds=len(figure.rounds) or _rounds(name, measured))
    if not wanted.of:
        return _held(told, wanted, figure, None, times=times)
    against = measured.last_good if wanted.of == "last good" else measured.baseline
    without: State = "alone" if wanted.of == "last good" else "unmeasured"
    if against is None:
        why = NO_BASELINE if wanted.of == "baseline" else "no last good run to compare with"
        return replace(told, state=without, why=why)
    at = _whole_name(name, measured)
    other = against.figures.get(at)
    if other is None:
        return replace(told, state=without, why=f"run {against.run} has no {at} to compare with")
    return _held(replace(told, run=against.run), wanted, figure, other, times=times, spread=spread)


def _held(
    told: Judged, wanted: Gate, figure: Figure, other: Figure | None, *, times: int, spread: float = 0.0
) -> Judged:
    """The figure against the bar, which is a multiple of `other` where there is one."""
    bar = wanted.bound * other.value if other else wanted.bound
    noise = Noise(0.0, UNTOLD) if split(told.name)[0] == EXACT else _noise(figure)
    margin = noise.margin(confidence(times)) if noise else None
    if other:
        margin = _margin_of_both(figure, other, wanted.bound, confidence(times), spread)
    if margin is None and times > 1:
        return replace(told, bar=bar, why="one round tells no noise")
    state = _state(wanted, figure.value, bar, margin or 0.0)
    why = "the noise hides whether it holds" if state == "within" else ""
    return replace(told, state=state, bar=bar, margin=margin, why=why)


def _unmeasured(name: str, measured: Measurement | None) -> str:
    if measured is None or measured.why:
        return measured.why if measured else "nothing was measured"
    plain, streams = split(name)
    if plain in ("speedup", EXACT) and measured.baseline is None:
        return NO_BASELINE
    if plain == EXACT and measured.quality:
        return "every prompt is answered in several ways without a draft, too"
    if plain == "accept_length" and measured.no_acceptance:
        return measured.no_acceptance
    rungs = [rung.concurrency for rung in measured.rungs]
    if streams is not None and streams not in rungs:
        return f"measured at {', '.join(map(str, rungs)) or 'no'} requests at once"
    return "absent is not zero"


def _whole_name(name: str, measured: Measurement) -> str:
    """With its concurrency: the lowest of another measurement need not be the lowest of this one."""
    plain, streams = split(name)
    return name if streams is not None else f"{plain}@{min(rung.concurrency for rung in measured.rungs)}"


def _rounds(name: str, measured: Measurement) -> int:
    """Of the rung that a figure without rounds of its own, as a speed-up, was made of."""
    streams = split(_whole_name(name, measured))[1]
    return next((rung.rounds for rung in measured.rungs if rung.concurrency == streams), 1)


def _noise(figure: Figure) -> Noise | None:
    """By its rounds, or by the band that it tells."""
    if figure.rounds or figure.low is None or figure.high is None:
        return statistics.noise(figure.rounds)
    half = (figure.high - figure.low) / 2
    return Noise(half / statistics.student((1 - statistics.CONFIDENCE) / 2, UNTOLD), UNTOLD)


def _margin_of_both(figure: Figure, other: Figure, factor: float, sure: float, spread: float) -> float | None:
    """Half the band of `figure - factor * other`. Who has one round is taken to be as noisy as the other one; both were
    started, and each start has its own spread.
    """
    own, others = _noise(figure), _noise(other)
    own, others = own or _borrowed(others, other, figure), others or _borrowed(own, figure, other)
    if own is None or others is None:
        return None
    others = others.times(factor)
    starts = Noise(spread * math.hypot(figure.value, factor * other.value), KNOWN)
    return max((both + starts if spread else both).margin(sure) for both in (own + others, own.alike(others)))


def _borrowed(known: Noise | None, of: Figure, by: Figure) -> Noise | None:
    if known is None or not of.value:
        return None
    rounds = len(of.rounds) or 1
    return Noise(known.error * math.sqrt(rounds / (len(by.rounds) or 1)) * abs(by.value / of.value), known.freedom)


def _state(wanted: Gate, value: float, bar: float, margin: float) -> State:
    """The worst and the best that it may be: it holds if both do, fails if neither does."""
    if wanted.op == "==":
        return "fails" if abs(value - bar) > margin else "within" if margin else "holds"
    ends = {wanted.holds(value - margin, bar), wanted.holds(value + margin, bar)}
    return "within" if len(ends) > 1 else "holds" if ends == {True} else "fails"
