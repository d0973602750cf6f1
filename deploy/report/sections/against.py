"""What was measured, beside the same without a draft and the last that was good; whether answers stay equal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from deploy.measuring import statistics
from deploy.measuring.measurement import Against, Figure, Measurement, Quality
from deploy.report import words
from deploy.report.blocks import Block, Cell, Code, Details, Section, Table, Text
from deploy.report.document import Run

LESS = ("ttft", "itl", "differences")  # measures of which less is better
FIRST = tuple(f"{words.name(name)}," for name in ("accept_length", "tok_s", "goodput", "ttft_p95", "itl_p95"))


def section(run: Run) -> Section | None:
    """None where there is nothing to compare with."""
    blocks = [
        block
        for one in run.measured
        for block in _blocks(one.measurement, f" ({one.host})" if len(run.measured) > 1 else "")
    ]
    return Section("Against the baseline and the last good run", tuple(blocks)) if blocks else None


def _blocks(measurement: Measurement, where: str) -> Iterator[Block]:
    """The measures that count at first sight; all of them behind a click."""
    for title, other in (("no draft", measurement.baseline), ("the last good run", measurement.last_good)):
        if other is not None and (table := _table(measurement.figures(), other)):
            yield Text(f"Against {title}: run {other.run}, {words.moment(other.at)}{_draft(other)}{where}")
            few = tuple(row for row in table.rows if str(row[0]).startswith(FIRST))
            yield replace(table, rows=few) if few else table
            if 0 < len(few) < len(table.rows):
                yield Details(f"all {len(table.rows)} measures", (table,))
    if measurement.quality is not None:
        yield from _quality(measurement.quality, where)


def _draft(other: Against) -> str:
    return f", draft {other.draft}" if other.draft else ", without speculation"


def _table(own: Mapping[str, Figure], other: Against) -> Table | None:
    """What both have measured, at each concurrency."""
    twice = {name for name in own if "@" not in name and any(key.startswith(f"{name}@") for key in own)}
    names = [name for name in own if name in other.figures and name not in twice]
    rows = tuple(_row(name, own[name], other.figures[name]) for name in names)
    head = ("measure", "this run", "the other", "ratio", "")
    return Table(head, rows, frozenset(head[1:4])) if rows else None


def _row(name: str, own: Figure, other: Figure) -> tuple[str | Cell, ...]:
    ratio = statistics.ratio(own, other)
    shown = "-" if ratio is None else f"{words.figure(ratio)} x"
    return words.name(name), words.figure(own, name), words.figure(other, name), shown, judged(name, ratio)


def judged(name: str, ratio: Figure | None) -> Cell:
    """Better, same or worse, by whether 1 lies outside the band of the ratio; nothing where there is no band."""
    if ratio is None or ratio.low is None or ratio.high is None:
        return Cell("")
    if ratio.low <= 1 <= ratio.high:
        return Cell("same", "soft")
    better = (ratio.value < 1) == name.startswith(LESS)
    return Cell("better", "good") if better else Cell("worse", "bad")


def _quality(told: Quality, where: str) -> Iterator[Block]:
    """Speculation must not change greedy answers."""
    unstable = (
        f"; {told.unstable} of these prompts are answered in more than one way without a draft, too"
        if told.unstable
        else ""
    )
    yield Text(
        f"Greedy answers with the draft against those without: {told.differ} of {told.compared} differ"
        f"{unstable}{where}.",
        "bad" if told.differ > told.unstable else "good" if not told.differ else "warn",
    )
    if told.first:
        first = told.first
        yield Code(
            f"with:    {first.get('with', '')}\nwithout: {first.get('without', '')}",
            f"the first difference: prompt {first.get('prompt', '')}, character {first.get('at', '')}",
        )
