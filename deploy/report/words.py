"""Numbers and what they mean, in the words of a report."""

from __future__ import annotations

import time

from deploy.measuring.measurement import Figure
from deploy.render import seconds

SECONDS = ("ttft", "itl")  # measures that begin so are times
NAMES = {
    "accept_length": "accept length",
    "tok_s": "tok/s",
    "tok_s_stream": "tok/s of a stream",
    "goodput": "goodput, requests/s",
    "speedup": "speed-up over no draft",
    "differences": "answers that differ",
    "ttft": "time to first token",
    "itl": "between tokens",
}


def name(measure: str) -> str:
    """A measure in words: ttft_p95@8 is `time to first token p95, 8 streams`."""
    base, _, streams = measure.partition("@")
    stem, _, which = base.rpartition("_p")
    told = f"{NAMES.get(stem, stem)} p{which}" if which.isdigit() else NAMES.get(base, base)
    return f"{told}, {streams} stream{'' if streams == '1' else 's'}" if streams else told


def value(number: float | None, measure: str = "") -> str:
    """Three digits that count: 0.94, 3.10, 64.8, 337; times as 50 ms or 1.25 s."""
    if number is None:
        return "-"
    if measure.startswith(SECONDS):
        return f"{digits(number * 1000)} ms" if abs(number) < 1 else f"{digits(number)} s"
    if measure == "differences":
        return f"{number:g}"
    return digits(number)


def digits(number: float) -> str:
    """A number with what counts of it; hundreds of thousands stay whole."""
    size = abs(number)
    return f"{number:.2f}" if size < 10 else f"{number:.1f}" if size < 100 else f"{number:.0f}"


def figure(told: Figure | None) -> str:
    """A figure with half the width of its band, without a unit: 3.10 ± 0.06."""
    if told is None:
        return "-"
    band = "" if told.low is None or told.high is None else f" ± {digits((told.high - told.low) / 2)}"
    return f"{digits(told.value)}{band}"


def share(part: float) -> str:
    """A share of the whole: 82 %."""
    return f"{part * 100:.0f} %" if part >= 0.1 or part == 0 else f"{part * 100:.1f} %"


def moment(at: float) -> str:
    """When, to the second, the same wherever it is read."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))


def took(value: float | None) -> str:
    """A duration, or a dash."""
    return "-" if value is None else seconds(value)
