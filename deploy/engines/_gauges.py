"""What a server tells of its speed while it serves, as data: names in its metrics, patterns in its log."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean

from deploy.engines._written import Written

SAMPLE = r"^{name}(?:\{{(?P<labels>[^\n]*)\}})?\s+(?P<value>\d{{1,15}}(?:\.\d+)?(?:e[+-]?\d\d?)?)(?:\s+\d+)?$"
GROUP = re.compile(r'\b(?:dp_rank|engine)="(\d+)"')


@dataclass(frozen=True)
class Live:
    """The last that a server said; None is what it did not say. `tokens_per_second`: generated, over all requests."""

    accept_length: float | None = None
    tokens_per_second: float | None = None


@dataclass(frozen=True)
class Gauges:
    """Where it says it. `metrics` and `log` have {field of Live: a metric's name, or a pattern with a group `value`}; a
    group `rank` tells servers apart that share a log (data parallel). `words`: one is in every line that counts.
    `written`: where its log tells the acceptance of all that it does.
    """

    path: str | None = None
    metrics: Mapping[str, str] = field(default_factory=dict)
    log: Mapping[str, re.Pattern[str]] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    written: Written | None = None


def live(gauges: Gauges, metrics: str, log: str) -> Live:
    """The metrics come first: a log's last line may be old."""
    length = _of(gauges, "accept_length", metrics, log)
    speed = _of(gauges, "tokens_per_second", metrics, log)
    # an accept length is 1 at least; SGLang's gauge is 0 until something was verified
    lengths = [one for one in length if one >= 1]
    return Live(fmean(lengths) if lengths else None, sum(speed) if speed else None)


def _of(gauges: Gauges, name: str, metrics: str, log: str) -> list[float]:
    """One value for each server of a data-parallel group."""
    told: dict[str, float] = {}
    if name in gauges.metrics:
        for sample in re.finditer(SAMPLE.format(name=re.escape(gauges.metrics[name])), metrics, re.MULTILINE):
            group = GROUP.search(sample["labels"] or "")
            rank = group[1] if group else ""
            told[rank] = max(told.get(rank, 0.0), float(sample["value"]))  # the ranks of one server tell the same
    if not told and name in gauges.log:
        for line in log.splitlines():
            if found := gauges.log[name].search(line):
                told[found.groupdict().get("rank") or ""] = float(found["value"])
    return list(told.values())
