"""Load generators, one a file: each runs one round of requests beside the server and says exactly what it ran.

To add one, add `loads/NAME.py` with what the `Load` protocol names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

from deploy import registry
from deploy.measuring.prompts import Prompt
from deploy.measuring.sample import Sample
from deploy.plan import Node
from deploy.remote import Remote


@dataclass(frozen=True)
class Round:
    """Each of the prompts as often as it stands there, so many at a time; `number` from 1, 0 is the warm-up."""

    number: int
    concurrency: int
    prompts: tuple[Prompt, ...]
    max_tokens: int
    timeout: float  # seconds for each answer
    fixed_length: bool = False  # generate on past the end of the answer
    temperature: float = 0.0
    seed: int = 0


@dataclass(frozen=True)
class Ran:
    """What a round brought."""

    samples: tuple[Sample, ...]
    seconds: float  # from the first request to the last answer
    command: str  # exactly what was run, where
    clock_jump: float = 0.0  # seconds that the host's wall clock moved beside its monotonic one
    client_busy: float | None = None  # the generator's share of a core
    watts: float | None = None
    gpu_bytes: int | None = None


Progress = Callable[[int, int], None]  # (requests ended, of how many)


class Load(Protocol):
    """A load generator."""

    COUNTS: bool
    """Whether its samples carry the counters of acceptance."""

    def run(self, wanted: Round, node: Node, remote: Remote, progress: Progress) -> Ran:
        """One round against the node's server, run on its host. DeployError where it cannot be run at all; a request
        that fails is a sample with its `error`.
        """


def load(name: str) -> Load:
    """The load generator called `name`."""
    return cast("Load", registry.load("deploy.loads", name, "load"))
