"""The rungs of a measurement as rows of a table, each value with its noise."""

from __future__ import annotations

from deploy.measuring.measurement import Figure, Measurement, Percentiles, Rung

COLUMNS = (
    "at once", "tok/s", "tok/s each", "accept length", "speed-up", "first token", "between tokens", "goodput", "errors",
    "cut off", "rounds",
)  # fmt: skip


WHOLE = 1000  # from here on nobody reads what is behind the point


def rows(measured: Measurement) -> list[dict[str, str]]:
    """One row a rung, by COLUMNS; what was not measured is empty."""
    return [_row(rung, measured.speedup.get(str(rung.concurrency))) for rung in measured.rungs]


def _row(rung: Rung, speedup: Figure | None) -> dict[str, str]:
    return {
        "at once": str(rung.concurrency),
        "tok/s": figure(rung.tok_s, 1),
        "tok/s each": figure(rung.tok_s_stream, 1),
        "accept length": figure(rung.accept_length),
        "speed-up": figure(speedup),
        "first token": _seconds(rung.ttft),
        "between tokens": _seconds(rung.itl),
        "goodput": figure(rung.goodput),
        "errors": f"{rung.errors} of {rung.requests}" if rung.errors else "",
        "cut off": f"{rung.truncated} of {rung.requests}" if rung.truncated else "",
        "rounds": str(rung.rounds),
    }


def figure(told: Figure | None, digits: int = 2) -> str:
    """The value and half its band: `27.0 ± 0.4`, thousands whole: `2641 ± 57`; "" where there is none."""
    if told is None:
        return ""
    digits = 0 if abs(told.value) >= WHOLE else digits
    value = f"{told.value:.{digits}f}"
    if told.low is None or told.high is None:
        return value
    return f"{value} ± {(told.high - told.low) / 2:.{digits}f}"


def _seconds(told: Percentiles | None) -> str:
    """The middle one, and the one that 5 of 100 are beyond, in milliseconds."""
    return "" if told is None else f"{told.p50.value * 1000:.1f} ms, p95 {told.p95.value * 1000:.1f}"
