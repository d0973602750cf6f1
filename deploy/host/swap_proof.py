"""Whether what is loaded is what was handed over, as far as checksums tell: a part of programs, no program.

Standard library, Python 3.8.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Mapping
from typing import NamedTuple

from deploy.host.header import opened
from deploy.host.swap_shm import Weight

COMPARED = 4 << 20  # bytes of one read
LOOKED = 100_000  # elements that differ, before it is left open whether a server sees it
# dtype: (the array's code, bits of an element that a server may drop which computes in bfloat16)
ROUNDED = {"F16": ("H", 3), "F32": ("I", 16), "F64": ("Q", 48)}


class Unproven(Exception):
    """What is loaded is not what it should be."""


class Differing(NamedTuple):
    """Tensors of two drafts whose bytes differ: so that every server sees it, and so that it may be rounded away."""

    surely: frozenset[str]
    perhaps: frozenset[str]


def differing(new: Mapping[str, Weight], before: Mapping[str, Weight]) -> Differing:
    """As a rule the first bytes of a tensor tell; of one that is the same, all are read."""
    told = {name: _difference(weight, before[name]) for name, weight in new.items()}
    return Differing(*(frozenset(name for name in told if told[name] == how) for how in ("surely", "perhaps")))


def _difference(one: Weight, other: Weight) -> str:
    """The two have the same dtype and shape."""
    found, left = "", LOOKED
    with opened(one.path) as first, opened(other.path) as second:
        for at in range(0, one.size, COMPARED):
            length = min(COMPARED, one.size - at)
            ours, theirs = os.pread(first, length, one.start + at), os.pread(second, length, other.start + at)
            if ours == theirs:
                continue
            if one.dtype not in ROUNDED:
                return "surely"
            found, left = "perhaps", _looked(ours, theirs, *ROUNDED[one.dtype], left)
            if left < 0:
                return "surely"
            if not left:
                break
    return found


def _looked(ours: bytes, theirs: bytes, code: str, bits: int, left: int) -> int:
    """How many more elements are looked at; -1 where one differs by more than rounding makes equal."""
    for one, other in zip(array(code, ours), array(code, theirs)):  # noqa: B905 Python 3.8
        if one != other:
            if abs((one >> bits) - (other >> bits)) > 1:
                return -1
            left -= 1
            if not left:
                break
    return left


def prove(
    after: Mapping[str, str],
    before: Mapping[str, str],
    expected: Mapping[str, str] | None,
    sent: Mapping[str, str],
    told: Differing,
) -> None:
    """Unproven where checksums after a hand-over, those before it, and those of a start say otherwise.

    `sent`: {tensor: parameter}. A parameter changes if a tensor that it takes does, at some rank; no other one does.
    """
    if set(after) != set(before):
        raise Unproven(f"the server tells {len(after)} checksums, and told {len(before)} before")
    if expected is not None and after != expected:
        other = sorted(name for name in {*after, *expected} if after.get(name) != expected.get(name))
        raise Unproven(f"{len(other)} checksums are not those of a start with this draft: {other[0]} first")
    known = {_parameter(name) for name in after}
    changed = {_parameter(name) for name in after if after[name] != before[name]}
    must = {sent[name] for name in told.surely}
    may = must | {sent[name] for name in told.perhaps}
    for name in sorted((must & known) - changed):
        raise Unproven(f"{name} is as before, and another tensor was sent for it: it was dropped")
    for name in sorted(changed - may):
        raise Unproven(f"{name} is another one than before, and none was sent for it")
    if must and not changed:
        raise Unproven("the same weights are loaded as before, and others were sent: they were dropped")


def _parameter(name: str) -> str:
    """Of a checksum's name: without the role that it begins with, and the rank at its end."""
    return name.partition(".")[2].partition("@")[0]
