"""Where a server's loader puts each tensor of a checkpoint, and which of its parameters nothing fills.

The same type for what our table of loaders says (`checkpoint/loaders`) and for what the installed engine itself did
(`checkpoint/exact.py`), so that the two are compared name by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

How = Literal[
    "as-is", "model. prefix", "legacy name", "stacked", "fused", "vocabulary map", "ignored", "dropped", "refused"
]


@dataclass(frozen=True)
class Landing:
    """One tensor: the parameter that it fills under its full name in the server's module, whole or as one shard of it.

    `shard` is "q", "k", "v", "0" or "1" of a stacked parameter, and `why` the server's own words where it refused.
    """

    tensor: str
    parameter: str | None
    how: How
    shard: str | None = None
    why: str = ""


@dataclass(frozen=True)
class Trace:
    """What a loader makes of a checkpoint. `shapes` are those that the class builds from config.json.

    `unfilled` are parameters that stay as they were made; the embeddings are not among them where the server takes the
    target's. `error` is what the constructor or the loader raised: such a server will not start.
    """

    landings: tuple[Landing, ...]
    unfilled: tuple[str, ...] = ()
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    error: str = ""

    @property
    def dropped(self) -> tuple[str, ...]:
        """Tensors that go nowhere, and of which the server says nothing that anybody reads."""
        return tuple(landing.tensor for landing in self.landings if landing.how == "dropped")
