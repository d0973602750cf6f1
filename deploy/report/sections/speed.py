"""Throughput and latency over the streams at once, with the noise of the rounds; the baseline beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from deploy.measuring.measurement import Figure, Measurement, Rung
from deploy.report import words
from deploy.report.blocks import Block, Chart, Point, Points, Section, Side, Table, Text
from deploy.report.document import Run

STREAMS = "streams at once"
THIS = "this run"
PERCENTILES = ("p50", "p95", "p99")


def section(run: Run) -> Section | None:
    """None where nothing was measured."""
    told = [one for one in run.measured if one.measurement.rungs]
    blocks: list[Block] = []
    for one in told:
        inner = tuple(_blocks(one.measurement))
        blocks += inner if len(told) == 1 else [Section(one.host, inner)]
    return Section("Throughput and latency", tuple(blocks)) if blocks else None


def _blocks(measurement: Measurement) -> Iterator[Block]:
    yield Side(tuple(_charts(measurement)))
    yield _load(measurement.rungs)
    for note in measurement.notes:
        yield Text(note, "warn")


def _charts(measurement: Measurement) -> Iterator[Chart]:
    rungs = measurement.rungs
    total = {THIS: {str(rung.concurrency): rung.tok_s for rung in rungs}}
    for name, other in (("no draft", measurement.baseline), ("last good", measurement.last_good)):
        if other is not None and other.tok_s:
            total[name] = dict(other.tok_s)
    yield lines("Throughput of all streams", "tok/s", total)
    stream = {str(rung.concurrency): rung.tok_s_stream for rung in rungs if rung.tok_s_stream}
    if stream:
        yield lines("Throughput of one stream", "tok/s", {THIS: stream}, "while it generates, after its first token")
    for name, title in (("ttft", "Time to the first token"), ("itl", "Between two tokens")):
        if series := _percentiles(rungs, name):
            yield lines(title, "ms", series, "percentiles over requests" if name == "ttft" else "tokens, not chunks")
    if len(measurement.speedup) > 1:
        yield lines("Speed-up over no draft", "times", {THIS: measurement.speedup}, "above 1: the draft gains")
    good = {str(rung.concurrency): rung.goodput for rung in rungs if rung.goodput}
    if good:
        yield lines("Goodput", "requests/s", {THIS: good}, "requests that kept the profile's limits of latency")


def _percentiles(rungs: tuple[Rung, ...], name: str) -> dict[str, dict[str, Figure]]:
    """{p50: {streams: milliseconds}}."""
    return {
        which: {
            str(rung.concurrency): _milli(getattr(getattr(rung, name), which)) for rung in rungs if getattr(rung, name)
        }
        for which in PERCENTILES
        if any(getattr(rung, name) for rung in rungs)
    }


def _milli(figure: Figure) -> Figure:
    def times(value: float | None) -> float | None:
        return None if value is None else value * 1000

    return Figure(value=figure.value * 1000, low=times(figure.low), high=times(figure.high))


def lines(title: str, unit: str, series: Mapping[str, Mapping[str, Figure]], caption: str = "") -> Chart:
    """A line with its band for each series, {series: {streams: figure}}."""
    streams = sorted({many for told in series.values() for many in told}, key=_number)
    points = tuple(
        Point(many, told[many].value, told[many].low, told[many].high, name)
        for name, told in series.items()
        for many in streams
        if many in told
    )
    rows = tuple((many, *(words.figure(told.get(many)) for told in series.values())) for many in streams)
    head = (STREAMS, *(f"{name}, {unit}" for name in series))
    plot = Points(points, unit, STREAMS, joined=True, names=tuple(series))
    return Chart(title, plot, Table(head, rows, frozenset(head)), caption)


def _number(word: str) -> tuple[float, str]:
    return (float(word), word) if word.replace(".", "", 1).isdigit() else (float("inf"), word)


def _load(rungs: tuple[Rung, ...]) -> Table:
    """What was asked, and how it went; columns that nothing is known for are left out."""
    columns = {
        STREAMS: [str(rung.concurrency) for rung in rungs],
        "rounds": [str(rung.rounds) for rung in rungs],
        "requests": [str(rung.requests) for rung in rungs],
        "errors": [_of(rung.errors, rung.requests) for rung in rungs],
        "cut at the limit": [_of(rung.truncated, rung.requests) for rung in rungs],
        "tokens": [str(rung.tokens) for rung in rungs],
        "took": [words.took(rung.seconds) for rung in rungs],
        "client's share of a core": [
            "" if rung.client_busy is None else words.share(rung.client_busy) for rung in rungs
        ],
        "GPU power": ["" if rung.watts is None else f"{rung.watts:.0f} W" for rung in rungs],
        "GPU memory": ["" if rung.gpu_bytes is None else f"{rung.gpu_bytes / 1e9:.1f} GB" for rung in rungs],
    }
    kept = {name: cells for name, cells in columns.items() if any(cells)}
    return Table(tuple(kept), tuple(zip(*kept.values(), strict=True)), frozenset(kept))


def _of(some: int, requests: int) -> str:
    return f"{some} ({words.share(some / requests)})" if some and requests else str(some)
