"""A checkpoint as its files say, read once, weights left out: data, from `deploy/host/checkpoint.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Format = Literal["safetensors", "gguf", "pickle", "none"]


@dataclass(frozen=True)
class Tensor:
    """One tensor: `start` and `end` are bytes counted from where the data of its file begin."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int
    file: str


@dataclass(frozen=True)
class File:
    """One weights file: bytes in all, bytes before its data, its tensors, and what its header says besides."""

    size: int
    data_start: int
    tensors: int
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Problem:
    """Something that is wrong with the files themselves; `at` is the byte of `file` where it shows."""

    what: str
    file: str = ""
    at: int | None = None


@dataclass(frozen=True)
class Statistic:
    """What was seen of a tensor's values: of `seen` of its elements, a sample unless all were asked for."""

    seen: int
    mean: float
    std: float
    least: float
    most: float
    zeros: int
    not_finite: int


@dataclass(frozen=True)
class Facts:
    """A folder or a file of weights: its headers, its config, its index, and the two vocabulary maps."""

    path: str
    format: Format = "safetensors"
    files: Mapping[str, File] = field(default_factory=dict)
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    index: Mapping[str, str] | None = None  # tensor -> file, where there is an index
    problems: tuple[Problem, ...] = ()
    d2t: Sequence[int] | None = None  # as it lies in the file; None: missing, or not of integers
    t2d: frozenset[int] | None = None  # target ids that the draft can say
    values: Mapping[str, Statistic] = field(default_factory=dict)  # empty unless asked for
