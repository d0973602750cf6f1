"""How much of what was drafted was kept: in all, by position, class of prompt, streams and rank; who counted it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from deploy.measuring.measurement import Acceptance, Measurement, Share
from deploy.report import words
from deploy.report.blocks import Block, Cell, Chart, Point, Points, Section, Side, Table, Text
from deploy.report.document import Run

LENGTH = "accept length"


def section(run: Run) -> Section | None:
    """None where nothing was measured."""
    told = [one for one in run.measured if not one.measurement.why]
    blocks: list[Block] = []
    for one in told:
        inner = tuple(_blocks(one.measurement))
        blocks += inner if len(told) == 1 else [Section(one.host, inner)]
    return Section("Acceptance", tuple(blocks)) if blocks else None


def _blocks(measurement: Measurement) -> Iterator[Block]:
    told = measurement.acceptance
    if told is None:
        yield Text(f"No acceptance: {measurement.no_acceptance or 'nothing tells it'}", "soft")
        return
    yield Text(_in_all(told))
    if charts := tuple(_charts(told, measurement.on.num_steps)):
        yield Side(charts)
    if measurement.witnesses:
        yield _witnesses(measurement)


def _in_all(told: Acceptance) -> str:
    band = "" if told.low is None or told.high is None else f" (95 % interval {told.low:.2f} to {told.high:.2f})"
    drafted = "" if told.drafted is None else f" of {told.drafted} drafted tokens"
    return (
        f"Accept length {told.accept_length:.2f}{band}: {told.accepted}{drafted} accepted in {told.steps} verify "
        f"steps, {told.generated} tokens generated; from {told.source}.\n{told.definition}."
    )


def _charts(told: Acceptance, num_steps: int | None) -> Iterator[Chart]:
    if told.positions:
        yield _positions(told.positions)
    ceiling = None if num_steps is None else float(num_steps + 1)
    named = (
        ("By class of prompt", "class", told.by_class),
        ("By streams at once", "streams", told.by_concurrency),
        ("By data-parallel rank", "rank", told.by_rank),
    )
    for title, what, shares in named:
        if len(shares) > 1 or (what == "class" and shares):
            yield _shares(title, what, shares, ceiling)


def _positions(positions: tuple[float, ...]) -> Chart:
    points = tuple(Point(str(number), value) for number, value in enumerate(positions, 1))
    rows = tuple((point.label, words.share(point.value)) for point in points)
    plot = Points(points, "accepted", "position of the draft in its step", percent=True, columns=True, ceiling=1.0)
    caption = "how often the 1st, 2nd, ... drafted token of a step was accepted"
    return Chart("By position", plot, Table(("position", "accepted"), rows, frozenset({"accepted"})), caption)


def _shares(title: str, what: str, shares: Mapping[str, Share], ceiling: float | None) -> Chart:
    points = tuple(Point(name, one.accept_length, one.low, one.high) for name, one in shares.items())
    rows = tuple(
        (name, f"{one.accept_length:.2f}", _interval(one), str(one.accepted), str(one.steps), str(one.requests or "-"))
        for name, one in shares.items()
    )
    head = (what, LENGTH, "95 % interval", "accepted", "steps", "requests")
    plot = Points(points, LENGTH, what, floor=1.0, ceiling=ceiling)
    return Chart(title, plot, Table(head, rows, frozenset(head[1:])), "with 95 % intervals; 1.00 is nothing accepted")


def _interval(one: Share) -> str:
    return "-" if one.low is None or one.high is None else f"{one.low:.2f} to {one.high:.2f}"


def _witnesses(measurement: Measurement) -> Table:
    """Who else counted, and whether they say the same."""
    verdicts = {True: Cell("agrees", "good"), False: Cell("DISAGREES", "bad"), None: Cell("shown only", "soft")}
    rows = tuple(
        (one.source, "-" if one.accept_length is None else f"{one.accept_length:.2f}", verdicts[one.agrees], one.note)
        for one in measurement.witnesses
    )
    return Table(("another source", LENGTH, "", "note"), rows, frozenset({LENGTH}))
