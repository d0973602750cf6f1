from __future__ import annotations

from deploy import hooks
from deploy.plan import Node
from deploy.remote import Remote


def ready(node: Node, remote: Remote) -> str:
    """Run the profile's hooks that announce the server"""
    return hooks.run("ready", node, remote)
