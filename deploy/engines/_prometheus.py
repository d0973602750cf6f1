"""Counters in Prometheus' text: each name once, summed over its labels (ranks, how requests ended, streams or not)."""

from __future__ import annotations

import re

SAMPLE = re.compile(
    r"^(?P<name>\w+:\w+)_total(?:\{[^\n]*\})?\s+(?P<value>\d{1,15}(?:\.\d{1,15})?(?:e\+?\d\d?)?)$", re.MULTILINE
)


def sums(metrics: str) -> dict[str, int]:
    """{name without _total: the sum}; what is no number is not told."""
    found: dict[str, int] = {}
    for sample in SAMPLE.finditer(metrics):
        found[sample["name"]] = found.get(sample["name"], 0) + int(float(sample["value"]))
    return found
