from __future__ import annotations

import json

from deploy.errors import NotReady
from deploy.facts import processes, sockets
from deploy.owned import owned
from deploy.plan import Node
from deploy.remote import Remote


def health(node: Node, remote: Remote) -> str:
    """Prove that what answers is what was launched"""
    ours = {process.pid for process in owned((remote.place.run,), processes.read(remote))}
    if not ours:
        raise NotReady(f"{remote.host.name}: the server is gone", remedy="deploy logs")
    listening = sockets.on(node.port, sockets.read(remote))
    owners = {pid for listener in listening for pid in listener.pids or ()}
    if owners and not owners & ours:
        raise NotReady(
            f"{remote.host.name}: port {node.port} is answered by somebody else's process",
            evidence=f"listening: pid {sorted(owners)}; launched: pid {sorted(ours)}",
            remedy="stop it, or choose another port",
        )
    names = _models(node, remote)
    if node.served_name not in names:
        raise NotReady(
            f"{remote.host.name}: it serves {', '.join(names) or 'nothing'}, not {node.served_name}",
            remedy="is model.name in the profile the served name?",
        )
    return f"serves {node.served_name}, by pid {min(owners & ours, default=min(ours))}"


def _models(node: Node, remote: Remote) -> list[str]:
    reply = remote.http("GET", node.port, "/v1/models", key=remote.place.key)
    if reply.status != 200:
        raise NotReady(
            f"{remote.host.name}: /v1/models answers {reply.status}", evidence=reply.body.decode(errors="replace")[:500]
        )
    return [str(entry.get("id")) for entry in json.loads(reply.body).get("data", [])]
