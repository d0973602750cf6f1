from __future__ import annotations

from dataclasses import replace

from deploy import swapping
from deploy.plan import Node
from deploy.remote import Remote


def match(node: Node, remote: Remote) -> str:
    """Compare the draft with the one that is served: may it take its place while the server runs"""
    source, draft = remote.place.source, node.draft
    if node.profile.hooks.prepare and source is None:
        return "the hooks that prepare it come first"
    if draft is None:
        raise RuntimeError("no draft is wished")
    lies = remote if source or draft.host else None
    path = f"{source.folder}/{draft.served}" if source else draft.path
    remote.place = replace(remote.place, sent=swapping.compared(node, remote, path, lies))
    return "alike in all but the values of its weights"
