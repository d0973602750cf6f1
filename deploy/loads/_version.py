"""Which version of the engine answers, as the server itself says it."""

from __future__ import annotations

from deploy.errors import NotReady
from deploy.plan import Node
from deploy.remote import Remote
from deploy.server import asking

TIMEOUT = 10.0  # seconds


def of(node: Node, remote: Remote) -> str | None:
    """None where it says nothing, or does not answer: then every question tells why."""
    for path in node.engine.INFO:
        try:
            reply = asking.get(path, node, remote, timeout=TIMEOUT)
        except NotReady:
            return None
        answer = asking.parsed(reply.body) if reply.status == 200 else None
        if answer is not None:
            return node.engine.loaded(answer).version
    return None
