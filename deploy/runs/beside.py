"""Two runs side by side as lines to read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from deploy import render
from deploy.runs import figures
from deploy.runs.comparing import Change, Compared, Differences, Took
from deploy.runs.kept import Kept
from deploy.text.legible import one_line

WIDEST = 60  # characters of a value
MOST = 40  # changes of one section; --json has all
LITTLE = 0.05  # seconds; what differs by less is not told

Styled = tuple[str, str]  # a line and its colour, "" for none
COLOURS = {"better": "green", "worse": "red", "unknown": "yellow", "same": ""}


def lines(found: Differences, tensors: Sequence[str] = ()) -> Iterator[Styled]:
    """What the runs were, what differs (with what `tensors` says of the drafts' contents), and what was measured."""
    yield from ((_run(letter, run), "bold") for letter, run in (("A", found.a), ("B", found.b)))
    for name, changes in found.sections.items():
        more = tensors if name == "checkpoint" else ()
        if changes or more:
            yield "", ""
            yield name, "bold"
            yield from ((line, "") for line in _changes(changes))
            yield from ((f"  {line}", "") for line in more)
    if found.none:
        yield "", ""
        yield "both were the same: profile, environment, flags, checkpoint, versions, project", ""
    yield from _took(found.steps, found.phases)
    yield from _measured(found)


def _run(letter: str, run: Kept) -> str:
    short = run.summary
    code = "not ended" if short.exit_code is None else f"exit {short.exit_code}"
    words = (letter, run.id, render.what(short.command, short.profile), code, short.text if short.exit_code else "")
    return "  ".join(one_line(word) for word in words if word)


def _changes(changes: Sequence[Change]) -> Iterator[str]:
    width = min(max((len(change.key) for change in changes), default=0), 32)
    for change in changes[:MOST]:
        yield f"  {one_line(change.key):<{width}}  {_value(change.a)} -> {_value(change.b)}"
    if len(changes) > MOST:
        yield f"  and {len(changes) - MOST} more: --json shows them"


def _value(value: Any) -> str:
    if value is None:
        return "(not set)"
    return one_line(value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False), WIDEST)


def _took(steps: Sequence[Took], phases: Sequence[Took]) -> Iterator[Styled]:
    both = [(one.name, one) for one in steps] + [(f"wait: {one.name}", one) for one in phases]
    rows = [
        (one_line(name), *(_seconds(took) for took in (one.a, one.b)), _more(one))
        for name, one in both
        if one.a is None or one.b is None or max(one.a, one.b) >= 1
    ]
    yield from _table("took, on the slowest host", ("", "A", "B", ""), rows, [""] * len(rows))


def _seconds(value: float | None) -> str:
    return "-" if value is None else render.seconds(value)


def _more(one: Took) -> str:
    if one.a is None or one.b is None or abs(one.b - one.a) < LITTLE:
        return ""
    return f"{'+' if one.b > one.a else '-'}{render.seconds(abs(one.b - one.a))}"


def _measured(found: Differences) -> Iterator[Styled]:
    rows = [
        (
            one.name,
            figures.text(one.name, one.a),
            figures.text(one.name, one.b),
            figures.ratio(one.ratio),
            word(one, judged=not found.incomparable),
        )
        for one in found.bench
    ]
    yield from _table("measured", ("", "A", "B", "B / A", ""), rows, [COLOURS[one.verdict] for one in found.bench])
    if found.incomparable:
        yield "", ""
        yield one_line(f"no figure is called better or worse: {found.incomparable}"), "yellow"


def word(one: Compared, *, judged: bool) -> str:
    """Better, same or worse, or why nothing is called so; `judged`: the same was measured of both."""
    if one.verdict == "unknown":
        if one.ratio is None:
            return ""
        if one.ratio.low is None:  # a speed-up has a band, and no rounds: `tok_s` tells what it would
            return "" if one.a and one.b and None not in (one.a.low, one.b.low) else "one round tells no noise"
        return "the noise hides it" if judged else ""
    return "same, within the noise" if one.verdict == "same" else one.verdict


def _table(
    title: str, head: tuple[str, ...], rows: Sequence[tuple[str, ...]], colours: Sequence[str]
) -> Iterator[Styled]:
    if not rows:
        return
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]

    def line(cells: tuple[str, ...]) -> str:
        return "  ".join(["", *(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))]).rstrip()

    yield "", ""
    yield title, "bold"
    yield line(head), "dim"
    yield from ((line(row), colour) for row, colour in zip(rows, colours, strict=True))
