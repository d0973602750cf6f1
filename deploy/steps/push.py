from __future__ import annotations

from deploy.deployment import releases
from deploy.plan import Node
from deploy.remote import Remote


def push(node: Node, remote: Remote) -> str:
    """Bring the draft to the host, and read it back there"""
    place, digest = remote.place, node.draft.digest if node.draft else ""
    remote.change(releases.BEGIN, place.folder, place.releases(node), place.machine.id, digest)
    if node.draft is None:
        return "no draft: nothing to send"
    release, outcome = releases.bring(node.draft, place.releases(node), remote)
    releases.link(release, place, remote)
    return outcome
