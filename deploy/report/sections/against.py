"""What was measured, beside the same without a draft and the last that was good; whether answers stay equal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from deploy.measuring.measurement import Against, Measurement, Quality
from deploy.report import words
from deploy.report.blocks import Block, Cell, Code, Details, Section, Table, Text, Tone
from deploy.report.document import Run
from deploy.runs import beside, comparing, figures
from deploy.runs.comparing import Compared

TONES: Mapping[str, Tone] = {"better": "good", "worse": "bad"}
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
        both = () if other is None else tuple(comparing.side_by_side(other.figures, measurement.figures()))
        told = [one for one in both if one.a and one.b]
        if other is not None and told:
            yield Text(f"Against {title}: run {other.run}, {words.moment(other.at)}{_draft(other)}{where}")
            table = side_by_side(told, "the other", "this run")
            few = tuple(row for row in table.rows if str(row[0]).startswith(FIRST))
            yield replace(table, rows=few) if few else table
            if 0 < len(few) < len(table.rows):
                yield Details(f"all {len(table.rows)} measures", (table,))
    if measurement.quality is not None:
        yield from _quality(measurement.quality, where)


def _draft(other: Against) -> str:
    return f", draft {other.draft}" if other.draft else ", without speculation"


def side_by_side(both: Iterable[Compared], first: str, second: str, *, judged: bool = True) -> Table:
    """Figures of two measurements, the second as a multiple of the first, and what that comes to beyond the noise."""
    head = ("measure", first, second, "ratio", "")
    rows = tuple(
        (
            words.name(one.name),
            figures.text(one.name, one.a),
            figures.text(one.name, one.b),
            figures.ratio(one.ratio),
            Cell(beside.word(one, judged=judged), TONES.get(one.verdict, "soft")),
        )
        for one in both
    )
    return Table(head, rows, frozenset(head[1:4]))


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
