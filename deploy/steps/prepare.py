from __future__ import annotations

from deploy import hooks
from deploy.plan import Node
from deploy.remote import Remote


def prepare(node: Node, remote: Remote) -> str:
    """Run the profile's hooks that make the draft ready"""
    served = [path for hook in node.profile.hooks.prepare if (path := hooks.prepare(hook, node, remote))]
    if not node.profile.hooks.prepare:
        return "no hooks"
    return f"serving {served[-1]}" if served else "nothing to change"
