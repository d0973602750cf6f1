"""How a run differs from another one: what it was, how long it took, what was measured."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from deploy.measuring.measurement import Figure
from deploy.render import number
from deploy.report import words
from deploy.report.blocks import Block, Code, Section, Table, Text
from deploy.report.sections.against import side_by_side
from deploy.runs.comparing import SECTIONS, Compared

LONGEST = 400  # characters of a value
NOT_SET = "(not set)"


def section(told: Mapping[str, Any]) -> Section:
    """One difference, as `deploy diff --json` tells it."""
    first, second = (str(dict(told.get(side) or {}).get("id", side)) for side in ("a", "b"))
    return Section(f"{second} against {first}", tuple(_blocks(told, first, second)))


def _blocks(told: Mapping[str, Any], first: str, second: str) -> Iterator[Block]:
    changes = tuple(_changes(told))
    if changes:
        yield Table(("of", "what", first, second), changes)
    else:
        yield Text("Both were the same: profile, environment, flags, checkpoint, versions, project.", "soft")
    if lines := told.get("tensors_told"):
        yield Code("\n".join(map(str, lines)), "the drafts, tensor by tensor")
    if measured := [one for one in told.get("bench") or () if one.get("a") or one.get("b")]:
        yield side_by_side(map(_compared, measured), first, second, judged=not told.get("incomparable"))
    if why := told.get("incomparable"):
        yield Text(f"No figure is called better or worse: {why}.", "warn")
    if took := tuple(_took(told)):
        yield Table(("took", first, second), took, frozenset({first, second}))


def _changes(told: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for part in SECTIONS:
        for one in told.get(part) or ():
            yield part, str(one.get("key")), _value(one.get("a")), _value(one.get("b"))


def _value(value: Any) -> str:
    if value is None:
        return NOT_SET
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _compared(one: Mapping[str, Any]) -> Compared:
    a, b, ratio = (Figure.model_validate(one[side]) if one.get(side) else None for side in ("a", "b", "ratio"))
    return Compared(str(one.get("name")), a, b, ratio, one.get("verdict", "unknown"))


def _took(told: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for part, before in (("steps", ""), ("phases", "wait: ")):
        for one in told.get(part) or ():
            yield f"{before}{one.get('name')}", words.took(number(one.get("a"))), words.took(number(one.get("b")))
