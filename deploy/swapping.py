"""Whether a draft comes into the server that runs or by a restart, and why: what is known before anything is sent."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from deploy.checkpoint import hot
from deploy.checks import ckpt
from deploy.deployment import compare, drafts, secret, weights
from deploy.deployment.state import Place, Run
from deploy.errors import CheckFailed, ConfigError, Unlike
from deploy.plan import Node
from deploy.remote import Remote

Hot = Literal["try", "only", "never"]  # in place where it can be; or not at all; a restart in any case
COLD = "without --hot it is restarted"
SAME = "the draft is the same, and nothing else can be exchanged"


def against(nodes: Sequence[Node], remotes: Mapping[str, Remote], how: Hot) -> str:
    """What makes it a restart for a replica, on hosts whose places are set; "" where nothing that is known yet does.

    CheckFailed where it would be a restart, and none is wanted.
    """
    remote = remotes[nodes[0].host.name]
    why = next(_against(nodes, remote, how), "")
    if why and how == "only":
        what = f"{remote.host.name}: its draft cannot be exchanged while it runs: {why}"
        raise CheckFailed(what, remedy=f"--ckpt names another one; {COLD}" if why == SAME else COLD)
    return why


def wished(node: Node, place: Place) -> bool:
    """Whether another draft is to come to a server that lives, so that an exchange may be expected."""
    running = place.current.node if place.current and place.current.alive else None
    return bool(running and running.draft and node.draft and running.draft.digest != node.draft.digest)


def compared(node: Node, remote: Remote, path: str, where: Remote | None) -> Mapping[str, str]:
    """Hold the draft at `path`, here or on a host, against the served one: {tensor: parameter} of what is handed over.

    Unlike where it cannot take its place.
    """
    current = remote.place.current
    running = current.node if current else None
    if current is None or running is None or running.draft is None:
        raise RuntimeError("no draft is served")
    try:
        served = drafts.facts(f"{current.folder}/{running.draft.served}", remote)
        cases, _ = ckpt.cases(node, remote, path, where, values=False)
    except ConfigError as error:
        raise Unlike(error.what, evidence=error.evidence, remedy=error.remedy) from error
    found = list(dict.fromkeys(line for case in cases for line in hot.obstacles(served, case)))
    if found:
        what = f"{remote.host.name}: this draft cannot take the place of the one that is served"
        raise Unlike(what, evidence="\n".join(found), remedy=f"that one serves on; {COLD}")
    return hot.sent(cases[0])


def _against(nodes: Sequence[Node], remote: Remote, how: Hot) -> Iterator[str]:
    node, place, current = nodes[0], remote.place, remote.place.current
    running = current.node if current else None
    if current is None or running is None or not current.alive or current.stopped:
        yield compare.not_there(current)
        return
    if current.torn:
        yield "an exchange of its draft broke off: what is loaded is not known"
    if node.draft is None or running.draft is None:
        yield "there is no draft to exchange"
    elif node.draft.digest == running.draft.digest:
        yield SAME
    swap = weights.offered(node, place)
    if swap.api is None:  # before what a user could change: of this one nothing helps
        yield swap.why
    if len(nodes) > 1:
        yield "its server is on several hosts, and weights are handed over in the memory of one"
    yield from _besides(running, node, current, remote)
    if swap.why and how != "only":
        yield swap.why


def _besides(running: Node, node: Node, current: Run, remote: Remote) -> Iterator[str]:
    """What differs besides the draft. A run that is gone back to has the secrets of its time, whatever ours are."""
    place = remote.place
    if replace(running, draft=node.draft).digest != node.digest:
        found = compare.differences(running.to_json(), replace(node, draft=running.draft).to_json())
        yield f"more than the draft differs: {'; '.join(found) or 'hooks, secrets or files'}"
    secrets = next(iter(secret.of_runs([place.source], remote)), {}) if place.source else os.environ
    if other := compare.others(current.manifest or {}, node, place.model, secrets):
        yield other
    launched, installed = (current.manifest or {}).get("engine_version"), place.engine and place.engine.installed
    if launched != installed:
        yield f"{node.profile.engine.name} {installed} is installed, and {launched} runs"
