from __future__ import annotations

import json
from typing import Any

from deploy.errors import NotReady
from deploy.facts import processes, sockets
from deploy.owned import owned
from deploy.plan import Node
from deploy.remote import Remote


def health(node: Node, remote: Remote) -> str:
    """Prove that what answers is what was launched"""
    ours = {process.pid for process in owned(remote.place.folder, processes.read(remote))}
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
    try:
        reply = remote.http("GET", node.port, "/v1/models", key=remote.place.key)
    except OSError as error:
        raise NotReady(
            f"{remote.host.name}: no answer from port {node.port}",
            evidence=f"GET /v1/models: {error or type(error).__name__}",
            remedy="deploy logs shows the server's own words",
        ) from error
    words = reply.body.decode(errors="replace")
    if reply.status != 200:
        raise NotReady(f"{remote.host.name}: /v1/models answers {reply.status}", evidence=words[:500])
    names = _names(words)
    if names is None:
        raise NotReady(f"{remote.host.name}: /v1/models answers no list of models", evidence=words[:500])
    return names


def _names(words: str) -> list[str] | None:
    """The ids in an OpenAI list of models; None where it is none."""
    try:
        answer: Any = json.loads(words)
    except (ValueError, RecursionError):
        return None
    entries = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        return None
    return [str(entry.get("id")) for entry in entries]
