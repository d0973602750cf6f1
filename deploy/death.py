"""Why a server is dead: how its launcher ended, and what its log says of it."""

from __future__ import annotations

from deploy.errors import LaunchFailed
from deploy.facts import disks
from deploy.plan import Node
from deploy.remote import Remote
from deploy.state import Run, reread

KEPT = 256 << 10  # bytes of its log that are read for the cause
FULL = 1 << 20  # bytes; a disk with less is no place for a log


def look(node: Node, remote: Remote) -> LaunchFailed | None:
    """The end of the run that is walked here; None where it lives."""
    run = reread(remote, remote.place)
    if run.alive:
        return None
    log = remote.sh('tail -c "$1" -- "$2/server.log"', str(KEPT), run.folder, ok=(0, 1))
    return explained(node, remote, _how(run), log)


def explained(node: Node, remote: Remote, how: str, log: str) -> LaunchFailed:
    """Its end (`how`: in words, after "the server") with the cause that its log tells, or its disk."""
    name = remote.host.name
    if known := node.engine.explain(log):
        return LaunchFailed(f"{name}: the server {how}: {known.cause}", evidence=known.evidence, remedy=known.remedy)
    (disk,) = disks.read(remote, remote.place.folder)
    if disk.free < FULL:
        return LaunchFailed(
            f"{name}: the server {how}, and its disk is full",
            evidence=f"{disk.free} bytes are free on {disk.mount} ({disk.kind})\n{log[-1500:]}",
            remedy="make room there, and run the command again; it may have died of a log that it could not write",
        )
    remedy = "its log is above; the whole of it: deploy logs"
    return LaunchFailed(f"{name}: the server {how}", evidence=log[-1500:], remedy=remedy)


def _how(run: Run) -> str:
    if run.left:
        return run.ending
    if run.stopped:
        return f"was {run.ending}"
    return f"ended with exit code {run.exit}" if run.exit else "was killed"
