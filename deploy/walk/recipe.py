"""The life of a deployment, each on one line: which steps, in which order, on which hosts of a replica."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from deploy.plan import Node, Replica
from deploy.remote import Remote
from deploy.steps.agree import agree
from deploy.steps.bench import bench
from deploy.steps.free import free
from deploy.steps.gate import gate
from deploy.steps.health import health
from deploy.steps.inherit import inherit
from deploy.steps.keep import keep
from deploy.steps.launch import launch
from deploy.steps.match import match
from deploy.steps.preflight import preflight
from deploy.steps.prepare import prepare
from deploy.steps.push import push
from deploy.steps.ready import ready
from deploy.steps.recall import recall
from deploy.steps.smoke import smoke
from deploy.steps.stop import stop
from deploy.steps.stopped import stopped
from deploy.steps.swap import swap
from deploy.steps.wait import wait

Verb = Callable[[Node, Remote], str]


@dataclass(frozen=True)
class Step:
    """A verb and where it runs: on each host of a replica, on its head alone, or there if it has several hosts."""

    verb: Verb
    scope: Literal["each", "head", "several"]
    head_first: bool = False  # the hosts of other ranks follow once it has ended on that of rank 0

    @property
    def name(self) -> str:
        return self.verb.__name__

    @property
    def line(self) -> str:
        """What it does, as the plan tells it."""
        return (self.verb.__doc__ or "").strip()

    def nodes(self, replica: Replica) -> tuple[Node, ...]:
        if self.scope == "each":
            return replica.nodes
        return (replica.head,) if self.scope == "head" or len(replica.nodes) > 1 else ()

    def waves(self, replica: Replica, follows: Callable[[Node], bool]) -> list[tuple[Node, ...]]:
        """Who takes it at once, one wave after the other. `follows` knows which rank a host has by what runs there:
        what shall run may order them anew.
        """
        nodes = self.nodes(replica)
        later = tuple(node for node in nodes if self.head_first and follows(node))
        return [wave for wave in (tuple(node for node in nodes if node not in later), later) if wave]


Recipe = tuple[Step, ...]


def each(verb: Verb) -> Step:
    return Step(verb, "each")


def head(verb: Verb) -> Step:
    return Step(verb, "head")


def head_first(verb: Verb) -> Step:
    return Step(verb, "each", head_first=True)


def several(verb: Verb) -> Step:
    return Step(verb, "several")


def taken(recipe: Recipe, replicas: Iterable[Replica]) -> Recipe:
    """Those of its steps that these replicas take."""
    return tuple(step for step in recipe if any(step.nodes(replica) for replica in replicas))


PROVE = (each(wait), each(health), head(smoke), head(bench), head(gate), each(ready))
CLEARED = (head_first(stop), each(free))
REPLACE = (each(preflight), several(agree), each(push), each(prepare), *CLEARED, each(launch), *PROVE)
VERIFY = PROVE
ROLLBACK = (each(preflight), several(agree), each(recall), *CLEARED, each(launch), *PROVE)
SMOKE = (each(health), head(smoke))
BENCH = (each(health), head(smoke), head(bench), head(gate))
BASELINE = (each(preflight), several(agree), each(push), *CLEARED, each(launch), each(wait), *BENCH[:3], head(keep))
KEEP = (*BENCH[:3], head(keep), head(gate))
AGAIN = (each(recall), *CLEARED, each(launch), each(wait), each(health), head(smoke), each(ready), each(inherit))


def in_place(recipe: Recipe) -> Recipe:
    """The same with the draft exchanged in the server that runs, which is neither stopped nor launched: one server on
    one host.
    """
    names = [step.name for step in recipe]
    brought = next(name for name in ("push", "recall") if name in names)
    before, rest = recipe[: names.index(brought)], recipe[names.index(brought) :]
    kept = tuple(step for step in rest if step not in (*CLEARED, each(launch)))
    after = kept.index(each(wait))
    return (*before, head(match), *kept[:after], head(swap), *kept[after:])


IN_PLACE: dict[Recipe, Recipe] = {recipe: in_place(recipe) for recipe in (REPLACE, ROLLBACK, AGAIN)}
BACK = (ROLLBACK, IN_PLACE[ROLLBACK])
CHECK = (each(preflight),)
STOP = (head_first(stop),)
DOWN = (*CLEARED, each(stopped))
