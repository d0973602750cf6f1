"""Why a server is dead: how its launcher ended, and what its log says of it."""

from __future__ import annotations

from dataclasses import replace

from deploy.deployment.state import Run, reread
from deploy.engines._ending import STATUS
from deploy.engines._log import UNSEEN, Explanation, Seen
from deploy.errors import LaunchFailed
from deploy.facts import disks
from deploy.plan import Node
from deploy.remote import Remote

KEPT = 256 << 10  # bytes of its log that are read for the cause, and as many of what was taken off its beginning
READ = 'cd -- "$2" && tail -q -c "$1" server.log.1 server.log 2>/dev/null'
FOLLOWED = 5  # consequences that are told
SHOWN = 1500  # characters of its log that are shown where nothing explains it
FULL = 1 << 20  # bytes; a disk with less is no place for a log


def look(node: Node, remote: Remote) -> LaunchFailed | None:
    """The end of the run that is walked here; None where it lives."""
    return of(reread(remote, remote.place), node, remote)


def of(run: Run, node: Node, remote: Remote) -> LaunchFailed | None:
    """The end of a run, as it is told; None where it lives."""
    if run.alive:
        return None
    log = remote.sh(READ, str(KEPT), run.folder, ok=(0, 1))
    return explained(node, remote, _how(run), log, Seen(exit=int(run.exit) if run.exit.isdigit() else None))


def explained(node: Node, remote: Remote, how: str, log: str, seen: Seen = UNSEEN) -> LaunchFailed:
    """Its end (`how`: in words, after "the server") with the cause that its log and what was seen tell, or its disk."""
    name = remote.host.name
    known = node.engine.explain(log, replace(seen, known=remote.known))
    if known and known.signature not in STATUS:
        return _died(name, how, known)
    (disk,) = disks.read(remote, remote.place.folder)
    if disk.free < FULL:
        return LaunchFailed(
            f"{name}: the server {how}, and its disk is full",
            evidence=f"{disk.free} bytes are free on {disk.mount} ({disk.kind})\n{end(log)}",
            remedy="make room there, and run the command again; it may have died of a log that it could not write",
        )
    if known:
        return _died(name, how, known)
    remedy = "its log is above; the whole of it: deploy logs"
    return LaunchFailed(f"{name}: the server {how}", evidence=end(log), remedy=remedy)


def _died(name: str, how: str, told: Explanation) -> LaunchFailed:
    return LaunchFailed(f"{name}: the server {how}: {cause(told)}", evidence=evidence(told), remedy=told.remedy)


def cause(told: Explanation) -> str:
    """The cause, after the rank that it is of, and its name in docs/failures.md."""
    rank = f"{told.rank}: " if told.rank else ""
    return f"{rank}{told.cause} ({told.signature})"


def evidence(told: Explanation) -> str:
    """The lines that show it, and what only followed."""
    return "\n".join([told.evidence, *(f"it followed: {words}" for words in told.consequences[:FOLLOWED])])


def end(log: str) -> str:
    """Its last lines, none without its beginning: what tells that something is a secret stands in front of it."""
    if len(log) <= SHOWN:
        return log
    *_, last = log.rstrip("\n").rpartition("\n")
    return log[-SHOWN - 1 :].partition("\n")[2] if len(last) < SHOWN else last[:SHOWN]


def _how(run: Run) -> str:
    if run.left:
        return run.ending
    if run.stopped:
        return f"was {run.ending}"
    return f"ended with exit code {run.exit}" if run.exit else "was killed"
