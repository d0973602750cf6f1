"""What a host shows of a server that died or is silent, kept in the run's record."""

from __future__ import annotations

from deploy.plan import Node
from deploy.remote import Remote
from deploy.state import Run

KEPT = 64 << 10  # bytes of the log


def collect(node: Node, remote: Remote, run: Run) -> None:
    """Look at all that may show why, side by side and in a bounded time; one `evidence` event carries it.

    It raises nothing: what cannot be looked at is told in the place of what it would have shown.
    """
    log = remote.sh('tail -c "$1" -- "$2/server.log"', str(KEPT), run.folder, ok=(0, 1))
    remote.emit("evidence", f"the end of its log, rank {node.rank}", files={"server.log": log})
