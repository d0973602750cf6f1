"""Deployments as the hosts tell them: for the commands that need no profile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import click

from deploy import inventory, settings
from deploy.deploying import course, key
from deploy.errors import ConfigError, DeployError
from deploy.inventory import Host, Inventory
from deploy.options import Options, environ
from deploy.plan import Plan, Replica
from deploy.recipe import Recipe
from deploy.runner import Course
from deploy.session import Session, together
from deploy.state import Machine, Place, Run
from deploy.wish import home

ONCE = ("waive=", "evict=")  # a restart with another checkpoint is another case: it is waived anew, or not


@dataclass(frozen=True)
class Running:
    """One deployment and its runs, host by host, in the inventory's order."""

    name: str
    runs: Mapping[str, Run]

    @property
    def alive(self) -> bool:
        return any(run.alive for run in self.runs.values())

    def words(self) -> tuple[str, ...]:
        """The `key=value` words with which it was launched, but for those that permit something once."""
        first = next(iter(self.runs.values()))
        words = first.manifest["words"] if first.manifest else ()
        return tuple(word for word in words if not word.startswith(ONCE))

    def ckpt(self) -> str | None:
        """The checkpoint that a `restart --ckpt` gave it."""
        first = next(iter(self.runs.values()))
        return first.manifest["ckpt"] if first.manifest else None

    def plan(self) -> Plan:
        """The plan as it was launched, from the manifests."""
        nodes = [node for run in self.runs.values() if (node := run.node)]
        if not nodes:
            raise ConfigError(f"the runs of {self.name} have no manifest", remedy=f"deploy up profile={self.name}")
        size = nodes[0].profile.nodes
        groups = [nodes[i : i + size] for i in range(0, len(nodes), size)]
        return Plan(self.name, tuple(Replica(tuple(sorted(group, key=lambda node: node.rank))) for group in groups))


def hosts(options: Options) -> tuple[Host, ...]:
    """The hosts to be asked: all of the inventory, or --hosts."""
    found: Inventory = inventory.load(home(options).inventory)
    return found.select(options.hosts or ("all" if found.hosts else "localhost"))


def ask(options: Options, session: Session) -> dict[str, DeployError]:
    """Ask the hosts what they have. Those that do not answer are named, and are an error if none does."""
    failed = session.ask(hosts(options))
    if failed and not session.machines:
        raise together(failed)
    for name, error in failed.items():
        click.echo(f"{name} does not answer and is left out: {error.what}", err=True)
    return failed


def deployments(machines: Mapping[str, Machine]) -> dict[str, Running]:
    """Every deployment that the hosts know, by name."""
    found: dict[str, dict[str, Run]] = {}
    for host, machine in machines.items():
        for name, deployment in machine.deployments.items():
            if deployment.current:
                found.setdefault(name, {})[host] = deployment.current
    return {name: Running(name, runs) for name, runs in sorted(found.items())}


def the_one(options: Options, session: Session) -> Running:
    """The deployment that is meant: `profile=NAME`, else the only one that runs, else the only one there is."""
    known = deployments(session.machines)
    wanted = [word.partition("=")[2] for word in options.words if word.startswith("profile=")]
    if wanted:
        if wanted[-1] in known:
            return known[wanted[-1]]
        raise ConfigError(f"no host has a deployment {wanted[-1]}", remedy=f"known: {', '.join(known) or 'none'}")
    for candidates in ([one for one in known.values() if one.alive], list(known.values())):
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            names = ", ".join(one.name for one in candidates)
            raise ConfigError(f"several deployments: {names}", remedy=f"say which: profile={candidates[0].name}")
    raise ConfigError(
        f"nothing is deployed on {', '.join(session.machines)}", remedy="deploy up profile=NAME, or look with --hosts"
    )


def narrowed(options: Options, running: Running) -> Plan:
    """The running plan with this command line's overrides for what is asked of the server (smoke, bench, gates)."""
    words = [word for word in options.words if not word.startswith("profile=")]
    if not words:
        return running.plan()
    profile = settings.load(running.name, [*running.words(), *words], home(options), environ()).profile()
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
    for node in plan.nodes:
        remote, machine = session.remotes[node.host.name], session.machines[node.host.name]
        run = machine.current(node.deployment)
        if run:
            remote.place = Place(machine, node.deployment, run.id, key=key(node, run, remote))
    return [course(replica, recipe, session) for replica in plan.replicas]
