"""Several runs side by side: one line each, their acceptance and throughput in one picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from deploy.measuring.measurement import Figure, Measurement
from deploy.report import words
from deploy.report.blocks import Block, Cell, Chart, Point, Points, Section, Side, Table
from deploy.report.document import Document, Run
from deploy.report.sections import speed, verdict
from deploy.runs import figures

HEAD = ("run", "command", "verdict", "accept length", "tok/s", "speed-up", "took")


def section(document: Document) -> Section | None:
    """None for one run alone."""
    if len(document.runs) < 2:
        return None
    return Section("Side by side", tuple(_blocks(document.runs)))


def _blocks(runs: tuple[Run, ...]) -> Iterator[Block]:
    yield Table(HEAD, tuple(_row(run) for run in runs), frozenset(HEAD[3:]))
    if charts := tuple(_charts(runs)):
        yield Side(charts)


def _row(run: Run) -> tuple[str | Cell, ...]:
    measurement = first(run)
    found: Mapping[str, Figure] = measurement.figures() if measurement else {}
    shown = (_figure(found, run.told, name) for name in ("accept_length", "tok_s", "speedup"))
    return run.id, run.command, Cell(*verdict.word(run)), *shown, words.took(run.seconds)


def _figure(found: Mapping[str, Figure], told: Mapping[str, float], name: str) -> str:
    return figures.text(name, found[name]) if name in found else words.value(told.get(name), name)


def first(run: Run) -> Measurement | None:
    """The measurement of its first host that has one."""
    return next((one.measurement for one in run.measured if one.measurement.rungs), None)


def _charts(runs: tuple[Run, ...]) -> Iterator[Chart]:
    told = {run.id: found for run in runs if (found := first(run))}
    if len(told) < 2:
        return
    total = {name: {str(rung.concurrency): rung.tok_s for rung in one.rungs} for name, one in told.items()}
    yield speed.lines("Throughput of all streams", "tok/s", total)
    points = tuple(
        Point(kind, share.accept_length, share.low, share.high, name)
        for name, one in told.items()
        if one.acceptance
        for kind, share in one.acceptance.by_class.items()
    )
    if points:
        names = tuple(dict.fromkeys(point.series for point in points))
        rows = tuple((point.series, point.label, f"{point.value:.2f}") for point in points)
        table = Table(("run", "class", "accept length"), rows, frozenset({"accept length"}))
        plot = Points(points, "accept length", "class", floor=1.0, names=names)
        yield Chart("Acceptance by class of prompt", plot, table, "with 95 % intervals; 1.00 is nothing accepted")
