from __future__ import annotations

from deploy import hooks
from deploy.plan import Node
from deploy.remote import Remote


def stopped(node: Node, remote: Remote) -> str:
    """Run the profile's hooks that tell of the server's end"""
    return hooks.run("stopped", node, remote)
