"""Floors and ceilings for what is measured: `OP NUMBER`, as in `>= 1.15`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, get_args

Measure = Literal["accept_length", "tokens_per_second"]
MEASURES: tuple[str, ...] = get_args(Measure)
GRAMMAR = r"^\s*(>=|<=|==|>|<)\s*(-?\d+(?:\.\d+)?)\s*$"

_OPERATORS: MappingProxyType[str, Callable[[float, float], bool]] = MappingProxyType(
    {">=": operator.ge, "<=": operator.le, "==": operator.eq, ">": operator.gt, "<": operator.lt}
)


@dataclass(frozen=True)
class Gate:
    """What a measured value is held against."""

    op: str
    bound: float

    def holds(self, value: float) -> bool:
        """Whether `value` passes; a value that is no number passes nothing."""
        return _OPERATORS[self.op](value, self.bound)

    def __str__(self) -> str:
        return f"{self.op} {self.bound:.15g}"


def parse(text: str) -> Gate:
    """The gate that `text` says; ValueError where it is none."""
    found = re.match(GRAMMAR, text)
    if found is None:
        raise ValueError(f"should be an operator and a number, as in '>= 1.15', not {text!r}")
    return Gate(found[1], float(found[2]))
