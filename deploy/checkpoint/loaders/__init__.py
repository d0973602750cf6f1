"""What is known of the loaders of servers, as data: one family of classes a file, one row a range of versions.

A module of this package has `LOADERS`. A new version of a server that loads otherwise is a new row there; what the
rows say is compared with the real classes by `tests/engine/`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from deploy import registry
from deploy.checkpoint.config import LIMIT, Config, number

MOST = 128  # layers of a draft; a number beyond belief is as good as this one


@dataclass(frozen=True)
class Parameter:
    """One parameter of a server's class.

    `shape` is the whole of it, `shards` the rows of each part if it is stacked of several. A tensor that is larger
    along the axis `cut` is cut to size without a word, and one that is smaller filled with zeros where it `pads`;
    whatever else differs is refused.
    """

    shape: tuple[int, ...]
    shards: Mapping[str, int] = field(default_factory=dict)
    cut: int | None = None
    pads: bool = False

    def part(self, shard: str | None) -> tuple[int, ...]:
        """The shape of one shard, or of the whole."""
        return self.shape if shard is None else (self.shards[shard], *self.shape[1:])

    def fit(self, shape: tuple[int, ...], shard: str | None) -> tuple[Literal["", "refused", "in part"], str]:
        """What becomes of a tensor of this shape: taken, refused, or taken in part without a word."""
        wanted = self.part(shard)
        if shape == wanted:
            return "", ""
        words = f"{list(shape)}, the server builds {list(wanted)}"
        along = self.cut
        others = [axis for axis in range(len(wanted)) if axis != along]
        if along is None or len(shape) != len(wanted) or any(shape[axis] != wanted[axis] for axis in others):
            return "refused", words
        if shape[along] > wanted[along]:
            return "in part", f"{words}: what is over is cut off"
        return ("in part", f"{words}: the rest is filled with zeros") if self.pads else ("refused", words)


@dataclass(frozen=True)
class Loader:
    """How one class of a server loads a checkpoint: a row of the table.

    Patterns are regular expressions that are searched in a tensor's name. The order of what is tried: `renames`,
    `vocabulary_map`, `ignored`, `unasked`, `stacked`, `halves`, then the name itself.
    """

    engine: str
    architectures: tuple[str, ...]
    versions: str  # PEP 440, of releases: what comes after a release counts as the release
    source: str
    parameters: Callable[[Config], dict[str, Parameter]]
    stops: Callable[[Config], str]  # what the constructor raises for this config; empty: nothing
    renames: tuple[tuple[str, str], ...] = ()
    vocabulary_map: tuple[str, str] = ("d2t", "hot_token_id")  # pattern, what the server makes of it
    counts_up: bool = True  # whether it adds 0, 1, ... to the map when it loads it; else it is a parameter as any
    ignored: str = "t2d"
    unasked: Callable[[Config], str] = lambda _: ""  # what it drops where the config does not ask for it
    stacked: tuple[tuple[str, str, str], ...] = ()  # part of a name, what it becomes, shard
    halves: tuple[tuple[str, str, str], ...] = ()  # part of a name, what it becomes with its other half, shard
    prefix: Literal["optional", "always"] = "optional"  # whether `model.` is put before a name that is none itself
    bare: str = r"^lm_head\."  # names that have no prefix where all others have one
    unknown: Literal["dropped", "warned", "refused"] = "dropped"
    derives: str = ""  # what it makes of its weights once they are loaded, in new memory
    borrows_head: bool = False  # what no tensor is named for is the target's: a head too, whatever the config says

    def covers(self, version: Version) -> bool:
        return SpecifierSet(self.versions).contains(version.base_version)


def of(engine: str, architecture: str) -> tuple[Loader, ...]:
    """The rows of a class, oldest versions first; none if the class is in no table."""
    rows = [row for row in everything() if row.engine == engine and architecture in row.architectures]
    return tuple(rows)


def choose(engine: str, architecture: str, version: Version) -> Loader | None:
    """The row for this version."""
    return next((row for row in of(engine, architecture) if row.covers(version)), None)


def everything() -> tuple[Loader, ...]:
    """All rows of all files."""
    modules = (registry.load(__name__, name, "loader") for name in registry.names(__name__))
    return tuple(row for module in modules for row in module.LOADERS)


def sized(config: Config, key: str, defaults: Mapping[str, int]) -> int:
    """A size of the config, or what transformers takes where it is left out."""
    value = number(config, key)
    return defaults[key] if value is None else value


def unsized(config: Config, *keys: str) -> str:
    """Complains of the first key that is there and is no size; there may be no layers at all."""
    for key in keys:
        value = config.get(key, 1)
        if type(value) is not int or not (key != "num_hidden_layers") <= value < LIMIT:
            return f"{key} is {value!r:.40}, which is no size"
    return ""
