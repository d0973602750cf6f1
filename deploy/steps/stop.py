from __future__ import annotations

import json
import time

from deploy import host
from deploy.errors import NotReady, RemoteFailed
from deploy.facts import processes
from deploy.facts.processes import Process
from deploy.owned import owned
from deploy.plan import Node
from deploy.remote import Remote


def stop(node: Node, remote: Remote) -> str:
    """End this deployment's earlier servers, and nobody else's"""
    place = remote.place
    ours = owned(place.runs, processes.read(remote))
    if not ours:
        return "nothing was running"
    for folder in {process.run for process in ours if process.run}:
        _note(folder, remote)
    for signal, patience in (("TERM", node.profile.ready.patience), ("KILL", 10.0)):
        _signal(signal, ours, remote)
        left = _wait(remote, patience)
        if not left:
            return f"{len(ours)} processes ended by {signal}"
        remote.say(f"{len(left)} processes still live after {signal}")
        ours = left
    raise NotReady(
        f"{remote.host.name}: {len(ours)} processes of {node.deployment} survive KILL",
        evidence="\n".join(f"{process} (state {process.state})" for process in ours),
        remedy="a process in state D waits for a device or a disk; look at dmesg on the host",
    )


def _note(folder: str, remote: Remote) -> None:
    """Say in the run's folder that it was ended, and did not die. No reason not to end it where that fails."""
    try:
        remote.write(folder, {"stopped": f"by deploy at {time.strftime('%Y-%m-%d %H:%M:%S')}\n"})
    except RemoteFailed as error:
        remote.say(f"that it is ended cannot be noted: {error.what}")


def _signal(signal: str, targets: list[Process], remote: Remote) -> None:
    pairs = [[process.pid, process.start_ticks] for process in targets]
    remote.change_python(host.source("end"), signal, json.dumps(pairs))


def _wait(remote: Remote, patience: float) -> list[Process]:
    deadline = time.monotonic() + patience
    while (left := owned(remote.place.runs, processes.read(remote))) and time.monotonic() < deadline:
        remote.pause(0.2)
    return left
