"""Going back to the last run that had passed its gates: its command, its secrets, its draft, through the same gates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from deploy import compare, secret, state
from deploy.errors import CheckFailed
from deploy.plan import Node, Replica
from deploy.remote import Remote
from deploy.state import Asked, Place

SUFFIX = "-rollback"  # of a run that a failed one started, to get back to what was


def source(back: Replica, remotes: Mapping[str, Remote]) -> str:
    """The id of the run that is gone back to, on the head."""
    run = remotes[back.head.host.name].place.source
    return run.id if run else ""


def replica(deployment: str, run: str, remotes: Mapping[str, Remote], command: str) -> Replica:
    """The earlier server on these hosts; each host's place is set for going back to it as run `run`."""
    nodes = [_prepare(deployment, run, remote, command) for remote in remotes.values()]
    return Replica(tuple(sorted(nodes, key=lambda node: node.rank)))


def _prepare(deployment: str, run: str, remote: Remote, command: str) -> Node:
    machine = state.read(remote)
    known = machine.deployments.get(deployment)
    source = known.previous if known else None
    node = source.node if source else None
    if source is None or node is None or source.manifest is None:
        raise CheckFailed(
            f"{remote.host.name}: there is no earlier run of {deployment} that had passed its gates",
            remedy="deploy history lists what was tried; deploy up starts what the profile says",
        )
    asked = Asked(command, tuple(source.manifest.get("words", ())), source.manifest.get("ckpt"))
    node = replace(node, host=remote.host)
    model, engine = compare.model_identity(node, remote), compare.installed_engine(node, remote)
    key = secret.api_key_of(node.profile, source, remote)
    remote.place = Place(machine, deployment, run, model, engine, asked, key, source)
    return node
