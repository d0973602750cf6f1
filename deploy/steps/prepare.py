from __future__ import annotations

from deploy import hooks
from deploy.checks import ckpt
from deploy.plan import Node
from deploy.remote import Remote
from deploy.steps._refusing import refuse


def prepare(node: Node, remote: Remote) -> str:
    """Run the profile's hooks that make the draft ready"""
    if not node.profile.hooks.prepare:
        return "no hooks"
    served = [path for hook in node.profile.hooks.prepare if (path := hooks.prepare(hook, node, remote))]
    if node.draft:  # preflight only warned of a draft that the hooks were still to mend
        found = ckpt.judged(node, remote, f"{remote.place.folder}/draft", remote)
        refuse(found, node, remote, "nothing was stopped")
    return f"serving {served[-1]}" if served else "nothing to change"
