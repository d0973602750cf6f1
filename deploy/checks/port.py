"""The port and the GPUs that the server will take, while an earlier run of ours may still have them."""

from __future__ import annotations

from collections.abc import Iterator

from deploy import foreign
from deploy.findings import Finding
from deploy.owned import owned
from deploy.plan import Node
from deploy.remote import Remote
from deploy.state import read


def check(node: Node, remote: Remote) -> Iterator[Finding]:
    """Held by nobody but us. SGLang finds a taken port only after the whole load."""
    ours = {process.pid for process in owned(read(remote).deployments.get(node.deployment), remote)}
    theirs = [
        holder for holder in foreign.holders(node, remote) if not holder.process or holder.process.pid not in ours
    ]
    named = [holder for holder in theirs if holder.process]
    if named and not node.profile.evict:
        yield Finding(
            "port",
            "FAIL",
            "somebody else's server is in the way",
            "\n".join(map(str, named)),
            "ask its owner, choose another port, or take it with evict=yes",
        )
    elif theirs:
        yield Finding(
            "port", "WARN", "in the way now", "\n".join(map(str, theirs)), "it must be gone before the launch"
        )
    else:
        yield Finding("port", "PASS", f"port {node.port} is ours to take")
