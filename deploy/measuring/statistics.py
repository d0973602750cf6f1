"""Means with their noise, ratios, shares and percentiles; what a band says of a value is written beside it.

Noise is what one and the same server shows from round to round. It is taken as normal for means of rounds, with a
spread that is estimated from few of them: hence Student's t rather than the normal distribution.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, variance

from deploy.measuring.measurement import Figure

CONFIDENCE = 0.95
WIDEST = 600.0  # of the logarithm of a ratio


@dataclass(frozen=True)
class Noise:
    """How far a mean is off by chance: its standard error, with the degrees of freedom that this is known by."""

    error: float
    freedom: float

    def margin(self, confidence: float = CONFIDENCE) -> float:
        """Half the width of the band in which the truth lies, with that confidence."""
        return self.error * student((1 - confidence) / 2, self.freedom) if self.error else 0.0

    def __add__(self, other: Noise) -> Noise:
        """Of a sum or a difference of two means that know nothing of each other (Welch and Satterthwaite)."""
        both = self.error**2 + other.error**2
        parts = self.error**4 / self.freedom + other.error**4 / other.freedom
        return Noise(math.sqrt(both), both**2 / parts if parts else self.freedom + other.freedom)

    def alike(self, other: Noise) -> Noise:
        """The same, if the rounds of both spread alike (Student): with few of them it is easily fooled otherwise."""
        rounds, others = self.freedom + 1, other.freedom + 1
        freedom = self.freedom + other.freedom
        spread = (self.freedom * rounds * self.error**2 + other.freedom * others * other.error**2) / freedom
        return Noise(math.sqrt(spread / rounds + spread / others), freedom)

    def times(self, factor: float) -> Noise:
        return Noise(self.error * abs(factor), self.freedom)


def noise(values: Sequence[float]) -> Noise | None:
    """Of the mean of these rounds; None for one round, which tells none."""
    return Noise(math.sqrt(variance(values) / len(values)), len(values) - 1) if len(values) > 1 else None


def figure(values: Iterable[float], confidence: float = CONFIDENCE) -> Figure:
    """The mean of rounds and its band; ValueError where there is no round."""
    rounds = tuple(values)
    if not rounds:
        raise ValueError("no rounds")
    mean, off = fmean(rounds), noise(rounds)
    if off is None:
        return Figure(value=mean, rounds=rounds)
    margin = off.margin(confidence)
    return Figure(value=mean, low=mean - margin, high=mean + margin, rounds=rounds)


def ratio(top: Figure, bottom: Figure, confidence: float = CONFIDENCE) -> Figure | None:
    """`top / bottom` and its band, by the relative errors of both: 1 outside it is a difference that is real.

    Without a band where one of them has no noise; None where `bottom` is not above 0.
    """
    if bottom.value <= 0:
        return None
    value, one, other = top.value / bottom.value, noise(top.rounds), noise(bottom.rounds)
    if one is None or other is None or top.value <= 0:
        return Figure(value=value)
    margin = (one.times(1 / top.value) + other.times(1 / bottom.value)).margin(confidence)
    off = math.exp(min(margin, WIDEST))  # two wild rounds each: beyond it there is no number
    return Figure(value=value, low=value / off, high=value * off)


def telling(top: Figure, bottom: Figure, most: int) -> int | None:
    """How many rounds of each, more than there are, would as likely as not show that their ratio is not 1, if it is
    what they tell. None where that takes more than `most`.

    A band goes with the root of the rounds, and with what they tell of their spread: of two rounds that is next to
    nothing, so a few more make much of it. Known by those of one alone, which is on the safe side.
    """
    now, one, other = max(len(top.rounds), len(bottom.rounds)), noise(top.rounds), noise(bottom.rounds)
    if bottom.value <= 0 or top.value <= 0:
        return None
    off = abs(math.log(top.value / bottom.value))
    if one is None or other is None:
        return max(2, now + 1) if off else None  # the fewest that tell a spread
    errors = (
        known.error * math.sqrt(known.freedom + 1) / value for known, value in ((one, top.value), (other, bottom.value))
    )
    spread = math.hypot(*errors)
    return next((n for n in range(now + 1, most + 1) if Noise(spread / math.sqrt(n), n - 1).margin() < off), None)


def share(pairs: Iterable[tuple[int, int]], confidence: float = CONFIDENCE) -> tuple[float, float | None, float | None]:
    """(accept length, low, high) of (accepted drafts, verify steps), one pair for each request.

    Steps of one answer are alike, so the request is what varies: a ratio estimator over requests, linearised
    (Cochran, Sampling Techniques, 6.3). Requests that repeat a prompt are alike too: add their counts up before.
    One request tells no band. ValueError where no step was taken: absent is not zero.
    """
    told = [(accepted, steps) for accepted, steps in pairs if steps]
    steps = sum(of for _, of in told)
    if not steps:
        raise ValueError("no verify step")
    rate = sum(accepted for accepted, _ in told) / steps
    if len(told) < 2:
        return 1 + rate, None, None
    off = sum((accepted - rate * of) ** 2 for accepted, of in told)
    error = math.sqrt(off * len(told) / (len(told) - 1)) / steps
    margin = Noise(error, len(told) - 1).margin(confidence)
    return 1 + rate, max(1.0, 1 + rate - margin), 1 + rate + margin


def percentile(values: Iterable[float], percent: float) -> float:
    """Between the two values that stand there in order, linearly; ValueError where there is none."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values")
    place = (len(ordered) - 1) * percent / 100
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def student(tail: float, freedom: float) -> float:
    """The value that Student's t of so many degrees of freedom passes with the chance `tail` (below 0.5).

    Newton's way from the first terms of Fisher's series, which lie below it: the tail is convex there, so no step is
    too long.
    """
    normal = NormalDist().inv_cdf(1 - tail)
    value = normal + (normal**3 + normal) / (4 * freedom)
    value += (5 * normal**5 + 16 * normal**3 + 3 * normal) / (96 * freedom**2)
    for _ in range(100):
        step = (beyond(value, freedom) - tail) / _density(value, freedom)
        value += step
        if step <= 1e-10 * value:
            break
    return value


def beyond(value: float, freedom: float) -> float:
    """The chance that Student's t passes `value`, which is not negative."""
    return _beta(freedom / (freedom + value * value), freedom / 2, 0.5) / 2


def _density(value: float, freedom: float) -> float:
    scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - math.log(freedom * math.pi) / 2
    return math.exp(scale - (freedom + 1) / 2 * math.log1p(value * value / freedom))


def _beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function, by its continued fraction (Numerical Recipes, 6.4)."""
    if x >= (a + 1) / (a + b + 2):  # where the fraction converges slowly, that of the other side does not
        return 1 - _beta(1 - x, b, a) if x < 1 else 1.0
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, 200):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / (1 + term * d)
            c = 1 + term / c
            fraction *= c * d
        if abs(c * d - 1) < 1e-14:
            break
    return math.exp(scale) * fraction / a
