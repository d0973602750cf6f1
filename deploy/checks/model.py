"""The target model, where the profile says it lies on the host."""

from __future__ import annotations

from collections.abc import Iterator

from deploy.findings import Finding
from deploy.plan import Node
from deploy.remote import Remote


def check(node: Node, remote: Remote) -> Iterator[Finding]:
    """There, and readable by the user who will start the server."""
    path = node.profile.model.path
    found = remote.place.model
    if "error" in found:
        yield Finding(
            "model",
            "FAIL",
            f"the model {path} cannot be read: {found['error']}",
            remedy="set model.path; it is never pushed",
        )
    else:
        yield Finding("model", "PASS", f"the model is there, identity {str(found['identity'])[:16]}")
