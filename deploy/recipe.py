"""The life of a deployment, each on one line: which steps, in which order, on which hosts of a replica."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from deploy.plan import Node, Replica
from deploy.remote import Remote
from deploy.steps.bench import bench
from deploy.steps.free import free
from deploy.steps.gate import gate
from deploy.steps.health import health
from deploy.steps.launch import launch
from deploy.steps.preflight import preflight
from deploy.steps.prepare import prepare
from deploy.steps.push import push
from deploy.steps.ready import ready
from deploy.steps.recall import recall
from deploy.steps.smoke import smoke
from deploy.steps.stop import stop
from deploy.steps.stopped import stopped
from deploy.steps.wait import wait

Verb = Callable[[Node, Remote], str]


@dataclass(frozen=True)
class Step:
    """A verb and where it runs: on each host of a replica, or on its head alone."""

    verb: Verb
    scope: Literal["each", "head"]

    @property
    def name(self) -> str:
        return self.verb.__name__

    @property
    def line(self) -> str:
        """What it does, as the plan tells it."""
        return (self.verb.__doc__ or "").strip()

    def nodes(self, replica: Replica) -> tuple[Node, ...]:
        return replica.nodes if self.scope == "each" else (replica.head,)


Recipe = tuple[Step, ...]


def each(verb: Verb) -> Step:
    return Step(verb, "each")


def head(verb: Verb) -> Step:
    return Step(verb, "head")


PROVE = (each(wait), each(health), head(smoke), head(bench), head(gate), each(ready))
REPLACE = (each(preflight), each(push), each(prepare), each(stop), each(free), each(launch), *PROVE)
VERIFY = PROVE
ROLLBACK = (each(preflight), each(recall), each(stop), each(free), each(launch), *PROVE)
SMOKE = (each(health), head(smoke))
CHECK = (each(preflight),)
STOP = (each(stop),)
DOWN = (each(stop), each(free), each(stopped))
