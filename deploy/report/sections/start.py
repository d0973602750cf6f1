"""How long each step took, and each stage of the server's start: a waterfall of the slowest host, and of all hosts."""

from __future__ import annotations

from collections.abc import Iterator

from deploy.report import words
from deploy.report.blocks import Bar, Bars, Block, Chart, Section, Table
from deploy.report.document import Run, Span

KINDS = ("step", "stage of the start", "failed", "left")
PARTS = {
    "checks and files": ("preflight", "agree", "match", "push", "prepare", "recall"),
    "stop and free": ("stop", "free", "stopped"),
    "start": ("launch", "swap", "wait", "health"),
    "proof": ("smoke", "bench", "gate", "ready"),
}
MOST = 40  # hosts in a picture


def section(run: Run) -> Section | None:
    """None where no step was begun."""
    begun = [span for span in run.spans if span.begin is not None and span.seconds is not None]
    if not begun:
        return None
    return Section("Start", tuple(_blocks(run, begun)))


def _blocks(run: Run, begun: list[Span]) -> Iterator[Block]:
    hosts = list(dict.fromkeys(span.host for span in begun))
    slowest = max(hosts, key=lambda host: max(_end(span) for span in begun if span.host == host))
    yield _waterfall(run, [span for span in begun if span.host == slowest], slowest, len(hosts))
    if len(hosts) > 1:
        yield _all(begun, hosts)


def _waterfall(run: Run, begun: list[Span], host: str, hosts: int) -> Chart:
    bars: list[Bar] = []
    for span in begun:
        bars.append(Bar(span.step, span.begin or 0, span.seconds or 0, "step" if span.state == "done" else span.state))
        if span.step == "wait":
            of_host = [stage for stage in run.stages if stage.host == host]
            bars += [Bar(f"· {stage.name}", stage.begin, stage.seconds, KINDS[1]) for stage in of_host]
    texts = {span.step: span.text for span in begun}
    rows = tuple((bar.label, words.took(bar.begin), words.took(bar.seconds), texts.get(bar.label, "")) for bar in bars)
    title = f"Every step on {host}" if hosts == 1 else f"Every step on {host}, the slowest of {hosts} hosts"
    caption = f"{words.took(run.seconds)} in all"
    table = Table(("step", "began at", "took", "outcome"), rows, frozenset({"began at", "took"}))
    return Chart(title, Bars(tuple(bars), KINDS), table, caption)


def _all(begun: list[Span], hosts: list[str]) -> Chart:
    """Every host on a line, by what it was at."""
    ends = {host: max(_end(span) for span in begun if span.host == host) for host in hosts}
    shown = sorted(hosts, key=lambda host: -ends[host])[:MOST]
    bars = [Bar(span.host, span.begin or 0, span.seconds or 0, _part(span)) for span in begun if span.host in shown]
    took = {(span.host, span.step): words.took(span.seconds) for span in begun}
    steps = tuple(dict.fromkeys(span.step for span in begun))
    rows = tuple((host, *(took.get((host, step), "-") for step in steps), words.took(ends[host])) for host in hosts)
    left_out = f"the slowest {MOST} of {len(hosts)}" if len(hosts) > MOST else "the slowest first"
    bars.sort(key=lambda bar: shown.index(bar.label))
    table = Table(("host", *steps, "ended at"), rows, frozenset({*steps, "ended at"}))
    return Chart("All hosts", Bars(tuple(bars), (*PARTS, "failed", "left")), table, left_out)


def _part(span: Span) -> str:
    if span.state in ("failed", "left"):
        return span.state
    return next((part for part, steps in PARTS.items() if span.step in steps), "proof")


def _end(span: Span) -> float:
    return (span.begin or 0) + (span.seconds or 0)
