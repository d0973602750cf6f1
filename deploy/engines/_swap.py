"""What a server offers for exchanging the weights of its draft while it serves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from deploy.engines._ports import Said

Ask = tuple[str, Mapping[str, Any]]  # a path that is posted to, and the body


@dataclass(frozen=True)
class Api:
    """The requests of one exchange, in their order; `deploy/host/swap.py` sends them."""

    pause: Ask
    checksums: Ask
    begin: Ask
    update: Ask  # its body gets `serialized_named_tensors`
    end: Ask
    flush: Ask
    resume: Ask

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Swap:
    """How a draft can be exchanged in such a server; `why` says in words what speaks against it, or "" if nothing does.

    With both, it is a version that nobody has looked at yet: only who insists exchanges there.
    """

    api: Api | None
    why: str = ""


def never(why: str) -> Callable[[Said], Swap]:
    """Of an engine that has to be started anew, however it was told to serve."""
    return lambda _: Swap(None, why)
