"""How one checkpoint differs from another: config keys, and tensors that are gone, new, renamed, of another shape,
dtype or content. Pure: what must be compared by its bytes is compared by digests, which are asked for in between.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from deploy.checkpoint.facts import Facts

SAMPLED = 1000  # tensors: of a whole model the bytes are compared only where all are asked for

Kind = Literal["config", "added", "removed", "renamed", "reshaped", "dtype", "changed", "not compared"]
ABSENT = object()


@dataclass(frozen=True)
class Difference:
    """One thing that differs: what it is called in A and in B, and its value, or dtype and shape, there.

    None: it is not there.
    """

    kind: Kind
    a: str | None
    b: str | None
    before: Any = None
    after: Any = None


def wanted(a: Facts, b: Facts, *, deep: bool) -> tuple[list[str], list[str]]:
    """The tensors of each side whose bytes must be looked at: those that may be the same one under another name, and
    those that both have alike.
    """
    gone, new = _alone(a, b), _alone(b, a)
    kinds = {_kind(a, name) for name in gone} & {_kind(b, name) for name in new}
    look = deep or len(a.tensors) <= SAMPLED
    both = [name for name in a.tensors if look and name in b.tensors and _kind(a, name) == _kind(b, name)]
    return (
        [name for name in gone if _kind(a, name) in kinds] + both,
        [name for name in new if _kind(b, name) in kinds] + both,
    )


def differences(a: Facts, b: Facts, *, deep: bool) -> list[Difference]:
    """Everything, with the digests that both have brought. Without them, tensors that are alike by name, dtype and
    shape are taken for equal, but with `deep`: those whose bytes could not be read then, in a file that is cut off, are
    "not compared".
    """
    return [*_configs(a.config, b.config), *_tensors(a, b, deep=deep)]


def _configs(a: Mapping[str, Any], b: Mapping[str, Any], prefix: str = "") -> Iterator[Difference]:
    for key in {**a, **b}:
        before, after, name = a.get(key, ABSENT), b.get(key, ABSENT), f"{prefix}{key}"
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _configs(before, after, f"{name}.")
        elif before is ABSENT:
            yield Difference("config", None, name, None, after)
        elif after is ABSENT:
            yield Difference("config", name, None, before, None)
        elif (before, type(before)) != (after, type(after)):  # 1 and true are equal in Python, 1 and 1.0 too
            yield Difference("config", name, name, before, after)


def _tensors(a: Facts, b: Facts, *, deep: bool) -> Iterator[Difference]:
    renamed = dict(_renamed(a, b))
    back = {new: old for old, new in renamed.items()}
    for name, tensor in a.tensors.items():
        before, other = _said(a, name), b.tensors.get(name)
        if name in renamed:
            yield Difference("renamed", name, renamed[name], before, before)
        elif other is None:
            yield Difference("removed", name, None, before, None)
        elif tensor.shape != other.shape:
            yield Difference("reshaped", name, name, before, _said(b, name))
        elif tensor.dtype != other.dtype:
            yield Difference("dtype", name, name, before, _said(b, name))
        elif deep and not (name in a.digests and name in b.digests):
            yield Difference("not compared", name, name, before, before)
        elif len({facts.digests[name] for facts in (a, b) if name in facts.digests}) > 1:
            yield Difference("changed", name, name, before, before)
    for name in b.tensors:
        if name not in a.tensors and name not in back:
            yield Difference("added", None, name, None, _said(b, name))


def _renamed(a: Facts, b: Facts) -> Iterator[tuple[str, str]]:
    """Pairs of the same bytes; of several equal tensors the first one is the first one."""
    there: dict[tuple[Any, str], list[str]] = defaultdict(list)
    for name in _alone(b, a):
        if name in b.digests:
            there[_kind(b, name), b.digests[name]].append(name)
    for name in _alone(a, b):
        if name in a.digests and there[_kind(a, name), a.digests[name]]:
            yield name, there[_kind(a, name), a.digests[name]].pop(0)


def _alone(a: Facts, b: Facts) -> list[str]:
    return [name for name in a.tensors if name not in b.tensors]


def _kind(facts: Facts, name: str) -> tuple[str, tuple[int, ...]]:
    return facts.tensors[name].dtype, facts.tensors[name].shape


def _said(facts: Facts, name: str) -> str:
    dtype, shape = _kind(facts, name)
    return f"{dtype} {list(shape)}"
