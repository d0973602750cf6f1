"""A checkpoint as its files say, read once, weights left out: data, from `deploy/host/checkpoint.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any, Literal, NamedTuple

from deploy.errors import ConfigError
from deploy.findings import Outcome
from deploy.host import checkpoint
from deploy.host.folder import uncollected

Format = Literal["safetensors", "gguf", "pickle", "none"]


class Tensor(NamedTuple):  # of a dataclass two hundred thousand would take a second
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
    """Something that is wrong with the files themselves; `at` is the byte of `file` where it shows.

    `outcome` is what it comes to when it is served all the same; "": a server does not mind.
    """

    what: str
    file: str = ""
    at: int | None = None
    outcome: Outcome | Literal["could not tell"] = ""


@dataclass(frozen=True)
class Statistic:
    """What was seen of a tensor's values: moments of a sample of `seen` elements, those that are not finite left out.

    `zeros` are counted in the sample, `not_finite` (NaN, infinity) in `searched` elements: all of them if that was
    asked for. `kurtosis` is 3 for a normal distribution, 1.8 for an even one. Equal digests: equal samples.
    """

    seen: int
    mean: float
    std: float
    least: float
    most: float
    zeros: int
    not_finite: int
    kurtosis: float
    searched: int
    digest: str


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
    unseen: int = 0  # tensors for whose values there was no time, or that are cut off
    digests: Mapping[str, str] = field(default_factory=dict)  # of tensors that were asked for


def read(path: Path, **ask: Any) -> Facts:
    """The facts of a checkpoint on this machine; `ask` as `deploy/host/checkpoint.py` takes it (values, deep, digests).

    ConfigError where there is none.
    """
    with uncollected():
        return from_json(checkpoint.describe(str(path), **ask))


def from_json(answer: dict[str, Any]) -> Facts:
    """From `deploy/host/checkpoint.py`. ConfigError where there is no checkpoint."""
    found(answer)
    t2d = answer["t2d"]
    return Facts(
        answer["path"],
        answer["format"],
        files={name: File(*line) for name, line in answer["files"].items()},
        tensors={name: one for file, told in answer["tensors"].items() for name, one in _tensors(file, told)},
        config=answer["config"],
        index=answer["index"],
        problems=tuple(Problem(*line) for line in answer["problems"]),
        d2t=answer["d2t"],
        t2d=None if t2d is None else frozenset(t2d),
        values={name: Statistic(*line) for name, line in answer.get("values", {}).items()},
        unseen=answer.get("unseen", 0),
        digests=answer.get("digests", {}),
    )


def _tensors(file: str, told: Mapping[str, Sequence[Any]]) -> Iterator[tuple[str, Tensor]]:
    """Column by column: of a large model there are two hundred thousand, and one by one takes several times as long."""
    if not told:
        return iter(())
    dtypes, shapes, starts, ends = zip(*told.values(), strict=True)
    lines = zip(dtypes, map(tuple, shapes), starts, ends, repeat(file, len(told)), strict=True)
    return zip(told, map(partial(tuple.__new__, Tensor), lines), strict=True)


def found(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer of a program that looked for a checkpoint. ConfigError where it found none."""
    if "error" in answer:
        raise ConfigError(answer["error"], evidence=answer["evidence"], remedy=answer["remedy"])
    return answer
