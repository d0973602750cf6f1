"""Deployments as the hosts tell them: for the commands that need no profile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from deploy import inventory, settings, transport
from deploy.abreast import together
from deploy.deployment import state
from deploy.deployment.state import Machine, Place, Run
from deploy.errors import ConfigError, DeployError
from deploy.inventory import LOCAL, Host, Inventory
from deploy.options import Options, environ
from deploy.plan import Node, Plan, Replica
from deploy.profile import Profile
from deploy.project import home
from deploy.remote import Remote
from deploy.settings import sources
from deploy.walk.session import Session

if TYPE_CHECKING:
    from deploy.walk.course import Course
    from deploy.walk.recipe import Recipe

ONCE = {"waive", "evict"}  # a restart with another checkpoint is another case: it is waived anew, or not
MORE = ("rounds", "most_rounds", "concurrency", "timeout")  # of `bench`


@dataclass(frozen=True)
class Running:
    """One deployment, its runs and their hosts as the inventory has them now, in its order."""

    name: str
    runs: Mapping[str, Run]
    hosts: Mapping[str, Host]

    @property
    def alive(self) -> bool:
        return any(run.alive or run.left for run in self.runs.values())

    @property
    def told(self) -> bool:
        """Whether every run says what it is."""
        return all(run.node for run in self.runs.values())

    def words(self) -> tuple[str, ...]:
        """The `key=value` words with which it was launched, but for those that permit something once."""
        words = self._first().get("words", ())
        return tuple(word for word in words if word.lstrip("+~").partition("=")[0] not in ONCE)

    def ckpt(self) -> str | None:
        """The checkpoint that a `restart --ckpt` gave it."""
        ckpt: str | None = self._first().get("ckpt")
        return ckpt

    def plan(self) -> Plan:
        """The plan as it was launched, from the manifests; ConfigError where one cannot be read."""
        if not self.told:
            raise ConfigError(
                f"a run of {self.name} has no manifest that can be read",
                remedy=f"deploy up profile={self.name} replaces it, deploy down profile={self.name} ends it",
            )
        return self._plan({name: run.node for name, run in self.runs.items() if run.node})

    def plan_to_stop(self) -> Plan:
        """Enough of a plan to end it by its processes, whatever its manifests say."""
        return self._plan({name: run.node or _unknown(self.name, name) for name, run in self.runs.items()})

    def _first(self) -> Mapping[str, Any]:
        return next(iter(self.runs.values())).manifest or {}

    def _plan(self, nodes: Mapping[str, Node]) -> Plan:
        here = [replace(node, host=self.hosts[name]) for name, node in nodes.items()]
        size = here[0].profile.nodes
        groups = [here[i : i + size] for i in range(0, len(here), size)]
        return Plan(self.name, tuple(Replica(tuple(sorted(group, key=lambda node: node.rank))) for group in groups))


def _unknown(deployment: str, host: str) -> Node:
    profile = Profile.model_validate({"name": deployment, "engine": "command", "hosts": host, "model": "unknown"})
    return Node(Host.model_validate({"name": host}), profile, 0, (), (), (), None)


def hosts(options: Options, found: Inventory | None = None) -> tuple[Host, ...]:
    """The hosts to be asked: --hosts, or all of the inventory and this machine, where profiles may say `localhost`."""
    here = [LOCAL] if transport.may_be_host() else []
    found = found or inventory.load(home(options).inventory)
    if options.hosts:
        return found.select(options.hosts)
    return found.select(["all", *here] if found.hosts else LOCAL)


def named(options: Options, found: Inventory) -> tuple[Host, ...]:
    """The hosts that the inventory has: --hosts, or all of them; this machine where it has none."""
    return found.select(options.hosts or ("all" if found.hosts else LOCAL))


def ask(
    options: Options,
    session: Session,
    *,
    all_must_answer: bool = False,
    read: Callable[[Remote], Machine] = state.read,
) -> dict[str, DeployError]:
    """Ask the hosts what they have. Those that do not answer are named, and are an error if none does.

    `read` is for who asks for more in the same round trip.
    Who would change something must hear from all: the deployment may be on the one that is silent.
    """
    found = inventory.load(home(options).inventory)
    wanted = hosts(options, found)
    failed = session.ask(wanted, read=read)
    if not options.hosts and LOCAL not in found.hosts and len(wanted) > 1:
        _leave_out_bystander(session)
    if failed and all_must_answer:
        raise _together(failed)
    reached(failed, session)
    for name, error in failed.items():
        why = error.what.removeprefix(f"{name}: ")
        click.echo(f"{name} does not answer and is left out: {why}", err=True)
    return failed


def reached(failed: Mapping[str, DeployError], session: Session) -> None:
    """The error of all hosts where none answers."""
    if failed and not session.remotes:
        raise _together(failed)


def _together(failed: Mapping[str, DeployError]) -> DeployError:
    error = together(failed)
    error.remedy = f"{error.remedy}; or go without: --hosts 'all,!{',!'.join(failed)}'".lstrip("; ")
    return error


def _leave_out_bystander(session: Session) -> None:
    """Where nothing runs on this machine, or the inventory has it under another name, it is no part of the answer."""
    machine = session.machines.get(LOCAL)
    if machine is None:
        return
    twice = any(machine.same(other) for name, other in session.machines.items() if name != LOCAL)
    runs = [one.current for one in machine.deployments.values() if one.current]
    if twice or not any(run.alive or run.left for run in runs):
        session.keep(name for name in session.machines if name != LOCAL)


def deployments(session: Session) -> dict[str, Running]:
    """Every deployment that the hosts know, by name."""
    found: dict[str, dict[str, Run]] = {}
    for host, machine in session.machines.items():
        for name, deployment in machine.deployments.items():
            if deployment.current:
                found.setdefault(name, {})[host] = deployment.current
    return {
        name: Running(name, runs, {host: session.remotes[host].host for host in runs})
        for name, runs in sorted(found.items())
    }


def only_profile(options: Options) -> str | None:
    """The name in `profile=NAME`, for commands that take no other word; a ConfigError for any other."""
    name, others = sources.take("profile", options.words)
    if others:
        _look_at_bare(others, options)
        raise ConfigError(f"{others[0]!r} means nothing here", remedy="this command takes profile=NAME and options")
    return name


def _look_at_bare(words: Iterable[str], options: Options) -> None:
    """A word alone is no key=value: it was meant as a host where one is called so, and else as a profile."""
    for word in words:
        if "=" not in word and not word.startswith("~"):
            found: Inventory = inventory.load(home(options).inventory)
            option = "--hosts " if word in {*found.hosts, *found.groups, LOCAL} else "profile="
            raise ConfigError(f"{word!r} is not key=value", remedy=f"did you mean {option}{word}?")


def the_one(options: Options, session: Session) -> Running:
    """The deployment that is meant: `profile=NAME`, else the only one that runs, else the only one there is."""
    known = deployments(session)
    wanted, _ = sources.take("profile", options.words)
    if wanted:
        if wanted in known:
            return known[wanted]
        raise ConfigError(f"no host has a deployment {wanted}", remedy=f"known: {', '.join(known) or 'none'}")
    for candidates in ([one for one in known.values() if one.alive], list(known.values())):
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            names = ", ".join(one.name for one in candidates)
            raise ConfigError(f"several deployments: {names}", remedy=f"say which: profile={candidates[0].name}")
    raise ConfigError(
        f"nothing is deployed on {', '.join(session.machines)}", remedy="deploy up profile=NAME, or look with --hosts"
    )


def locked(found: Running, session: Session) -> Running:
    """Take the locks of its hosts, and read it again: somebody else may have changed it since the hosts were asked."""
    session.keep(found.runs)
    session.lock()
    return deployments(session).get(found.name, found)


def narrowed(options: Options, running: Running) -> Plan:
    """The running plan with this command line's overrides for what is asked of the server (smoke, bench, gates)."""
    _, words = sources.take("profile", options.words)
    _look_at_bare(words, options)
    if not words:
        return running.plan()
    profile = settings.load(running.name, words, home(options), environ(), repeated=running.words()).profile()
    asked = {"smoke": profile.smoke, "bench": profile.bench, "gates": profile.gates, "ready": profile.ready}
    return Plan(
        running.name,
        tuple(
            Replica(tuple(replace(node, profile=node.profile.model_copy(update=asked)) for node in replica.nodes))
            for replica in running.plan().replicas
        ),
    )


def courses(plan: Plan, recipe: Recipe, session: Session) -> list[Course]:
    """The deployment's replicas on a recipe, each host at the place of its current run."""
    from deploy.operations.deploying import course

    for node in plan.nodes:
        placed(node, session)
    return [course(replica, recipe, session) for replica in plan.replicas]


def placed(node: Node, session: Session) -> Remote:
    """The node's host, at the place of its current run."""
    from deploy.operations.deploying import key

    remote, machine = session.remotes[node.host.name], session.machines[node.host.name]
    run = machine.current(node.deployment)
    if run:
        remote.place = Place(machine, node.deployment, run.id, key=key(node, run, remote))
    return remote


def once(plan: Plan, found: Running, session: Session) -> None:
    """Gates that are not the run's own, and answers to other questions than its own, judge this measurement, and not
    the run.
    """
    for node, own in zip(plan.nodes, found.plan().nodes, strict=True):
        remote = session.remotes[node.host.name]
        remote.place = replace(remote.place, once=_asked(node) != _asked(own))


def _asked(node: Node) -> tuple[object, ...]:
    """What a verdict depends on; more rounds, or more of them at once besides, only tell more."""
    wish = node.profile.bench
    return node.profile.gates, wish.model_copy(update=dict.fromkeys(MORE))
