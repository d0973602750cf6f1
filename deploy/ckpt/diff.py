"""`deploy ckpt diff`: two checkpoints side by side, wherever each of them lies."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import click

from deploy.checkpoint import diff
from deploy.checkpoint.diff import Difference
from deploy.checkpoint.facts import Facts
from deploy.ckpt import Where, document, opened
from deploy.options import Options
from deploy.text.legible import one_line

COLOURS = {"removed": "red", "added": "green", "not compared": "magenta"}
ROWS = 200  # of one kind, as text
WIDEST = 120  # characters of a value of config.json


def run(a: str, b: str, options: Options, *, deep: bool) -> int:
    """Print how B differs from A; 0 where it does not, else 1. ConfigError where one of them is no checkpoint.

    Of each tensor the same sample of bytes is read on both sides, all of them with `deep`; of a whole model only what
    may be renamed, unless `deep`.
    """
    with opened([a, b], options, "diff") as places:
        first, second, found = between(places, deep=deep)
    if options.json:
        click.echo(document(_document(a, b, first, second, found, deep=deep)))
    else:
        click.echo("\n".join(lines(a, b, first, second, found, deep=deep)))
    return 1 if found else 0


def between(places: Sequence[Where], *, deep: bool) -> tuple[Facts, Facts, list[Difference]]:
    """What the checkpoints at two places say of themselves, and how the second differs from the first."""
    first, second = (place.facts() for place in places)
    names = diff.wanted(first, second, deep=deep)
    first, second = (
        _looked(place, facts, own, deep=deep) for place, facts, own in zip(places, (first, second), names, strict=True)
    )
    return first, second, diff.differences(first, second, deep=deep)


def _looked(place: Where, facts: Facts, names: Sequence[str], *, deep: bool) -> Facts:
    """The same facts with the digests of those tensors, computed where they lie."""
    return replace(facts, digests=place.facts(digests=list(names), deep=deep).digests) if names else facts


def _document(
    a: str, b: str, first: Facts, second: Facts, found: Sequence[Difference], *, deep: bool
) -> dict[str, Any]:
    return {
        "a": {"path": a, "tensors": len(first.tensors), "problems": [asdict(one) for one in first.problems]},
        "b": {"path": b, "tensors": len(second.tensors), "problems": [asdict(one) for one in second.problems]},
        "bytes": "all" if deep else "a sample of each" if _sampled(first) else "a sample of what may be renamed",
        "differences": [asdict(one) for one in found],
    }


def lines(a: str, b: str, first: Facts, second: Facts, found: Sequence[Difference], *, deep: bool) -> Iterator[str]:
    """The same for people."""
    for path, facts in ((a, first), (b, second)):
        for problem in facts.problems:
            yield click.style(f"{one_line(path)}: {one_line(f'{problem.file} {problem.what}')}", fg="yellow")
    kinds: dict[str, list[Difference]] = {}
    for one in found:
        kinds.setdefault(one.kind, []).append(one)
    for kind, same in kinds.items():
        yield from (click.style(f"{kind:<12}", fg=COLOURS.get(kind)) + f"  {_words(one)}" for one in same[:ROWS])
        if len(same) > ROWS:
            yield f"{'':<12}  and {len(same) - ROWS:,} more: --json shows them"
    equal = sum(name in second.tensors for name in first.tensors) - sum(one.a == one.b for one in found if _tensor(one))
    looked = ", and a sample of bytes" if _sampled(first) else ""
    how = "byte by byte" if deep else f"by name, dtype and shape{looked}; --deep compares all bytes"
    yield f"{equal:,} tensors are equal, {how}"


def _sampled(facts: Facts) -> bool:
    return len(facts.tensors) <= diff.SAMPLED


def _tensor(one: Difference) -> bool:
    return one.kind != "config"


def _words(one: Difference) -> str:
    if one.kind == "config":
        return f"{one_line(one.a or one.b or '')}: {_value(one.a, one.before)} -> {_value(one.b, one.after)}"
    names = one_line(one.a or one.b or "") + (f" -> {one_line(one.b or '')}" if one.kind == "renamed" else "")
    kinds = [str(kind) for kind in (one.before, one.after) if kind is not None]
    return f"{names}  {' -> '.join(dict.fromkeys(kinds))}"


def _value(name: str | None, value: Any) -> str:
    return "absent" if name is None else one_line(json.dumps(value, ensure_ascii=False), WIDEST)
