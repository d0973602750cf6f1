"""Bounds for what is measured: `OP NUMBER`, as in `>= 1.15`, or a multiple of another run's, `>= 0.95 x last good`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, cast, get_args

from deploy.config import schema

Named = Literal[
    "accept_length",
    "tok_s",
    "tok_s_stream",
    "ttft_p50",
    "ttft_p95",
    "ttft_p99",
    "itl_p50",
    "itl_p95",
    "itl_p99",
    "goodput",
    "speedup",
    "differences",
]
Of = Literal["", "last good", "baseline"]
MEASURES: tuple[str, ...] = get_args(Named)
RENAMED = MappingProxyType({"tokens_per_second": "tok_s"})
DRAFTED = ("accept_length", "speedup", "differences")  # what is measured of a draft alone
KEY_GRAMMAR = rf"^(?:{'|'.join(MEASURES)})(?:@[1-9]\d*)?$"
GRAMMAR = r"^\s*(>=|<=|==|>|<)\s*(-?\d+(?:\.\d+)?)(?:\s*x\s*(last good|baseline))?\s*$"

_OPERATORS: MappingProxyType[str, Callable[[float, float], bool]] = MappingProxyType(
    {">=": operator.ge, "<=": operator.le, "==": operator.eq, ">": operator.gt, "<": operator.lt}
)


@dataclass(frozen=True)
class Gate:
    """What a measured value is held against: a number, or so many times what another measurement has there."""

    op: str
    bound: float
    of: Of = ""

    def holds(self, value: float, bar: float | None = None) -> bool:
        """Whether `value` passes the bar, or the gate's own bound; a value that is no number passes nothing."""
        return _OPERATORS[self.op](value, self.bound if bar is None else bar)

    def __str__(self) -> str:
        return f"{self.op} {self.bound:.15g}{f' x {self.of}' if self.of else ''}"


def parse(text: str) -> Gate:
    """The gate that `text` says; ValueError where it is none."""
    found = re.match(GRAMMAR, text)
    if found is None:
        raise ValueError(
            "should be an operator and a number, as in '>= 1.15', or with what it is a multiple of, as in "
            f"'>= 0.95 x last good' or '>= 1.3 x baseline', not {text!r}"
        )
    return Gate(found[1], float(found[2]), cast("Of", found[3] or ""))


def measure(text: str) -> str:
    """The name of what a gate is on, `tok_s` or `tok_s@8` (at 8 requests at once); ValueError where it is none."""
    if re.match(KEY_GRAMMAR, text):
        return text
    name, at, streams = text.partition("@")
    if name in RENAMED:
        raise ValueError(f"is called {RENAMED[name]}{at}{streams}")
    if name in MEASURES:
        raise ValueError(f"should have a concurrency behind the @, as in {name}@8")
    near = schema.nearest(name, list(MEASURES))
    known = f"did you mean {near}?" if near else f"known: {', '.join(MEASURES)}"
    raise ValueError(f"there is no such measure; {known}")


def split(name: str) -> tuple[str, int | None]:
    """A measure and its concurrency; None: the lowest that is measured."""
    plain, _, streams = name.partition("@")
    return plain, int(streams) if streams else None
