from __future__ import annotations

import json
import time

from deploy import foreign, host
from deploy.errors import NotReady
from deploy.facts import gpus, processes
from deploy.facts.processes import Process
from deploy.foreign import Holder
from deploy.plan import Node
from deploy.remote import Remote


def free(node: Node, remote: Remote) -> str:
    """Wait until its port and its GPU memory are free"""
    started, patience = time.monotonic(), node.profile.ready.patience
    while holders := foreign.holders(node, remote, processes.read(remote)):
        waited = time.monotonic() - started
        others = [holder.process for holder in holders if holder.process]
        if others and not node.profile.evict:
            raise NotReady(
                f"{remote.host.name}: somebody else's process holds what we need",
                evidence=_lines(holders),
                remedy="ask its owner, or take it with evict=yes",
            )
        if waited > patience:
            raise NotReady(
                f"{remote.host.name}: not free after {patience:.0f} s",
                evidence=_lines(holders),
                remedy="memory without a visible process: a container, or a driver that is slow (raise ready.patience)",
            )
        _evict(others, "TERM" if waited < patience / 2 else "KILL", remote)
        remote.say(f"waiting: {holders[0]}")
        remote.pause(0.5)
    if node.gpus and gpus.read(remote).all is None:
        return f"port {node.port} free, measured; the GPUs cannot be seen"
    return f"port {node.port}{f' and {node.gpus} GPUs' if node.gpus else ''} free, measured"


def _evict(others: list[Process], signal: str, remote: Remote) -> None:
    if others:
        pairs = [[process.pid, process.start_ticks] for process in others]
        remote.change_python(host.source("end"), signal, json.dumps(pairs))


def _lines(holders: list[Holder]) -> str:
    return "\n".join(map(str, holders))
