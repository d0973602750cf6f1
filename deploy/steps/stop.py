from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from deploy.errors import NotReady, RemoteFailed
from deploy.facts import launched
from deploy.facts import leftovers as facts
from deploy.facts.launched import Launched
from deploy.facts.processes import Process
from deploy.ownership import ending, leftovers, owned
from deploy.ownership.leftovers import Belongings
from deploy.plan import Node
from deploy.remote import Remote

ORPHANS = 5.0  # seconds that those may take to end which outlive the server
CERTAIN = 10.0  # seconds until who is killed is gone: what a driver may need to take back a GPU's memory
FOLLOWERS = 10.0  # seconds for ranks above 0, once their head is gone
SLICE = 1.0  # seconds of waiting on the host, between which an interruption is heard


@dataclass(frozen=True)
class Seen:
    """What lives of the deployment on a host at one moment."""

    found: Launched
    ours: tuple[Process, ...]


Choice = Callable[[Seen], Sequence[Process]]


def stop(node: Node, remote: Remote) -> str:
    """End this deployment's earlier servers, and nobody else's"""
    seen = _look(remote)
    if inside := owned.inside_of(seen.found.living, seen.found.launches):
        raise NotReady(
            f"{remote.host.name}: this command runs inside the server that it would end",
            evidence=f"it descends from pid {inside.pid}, the launcher of {inside.run}",
            remedy="run it from another shell",
        )
    left = _belongings(seen, remote)
    if not seen.ours:
        return f"nothing was running{_swept(left, remote)}"
    _note(seen, remote)
    first, by = seen.ours, ""
    heads = {(process.pid, process.start_ticks) for process in owned.heads(seen.ours, seen.found.launches)}

    def leading(seen: Seen) -> list[Process]:
        return [process for process in seen.ours if (process.pid, process.start_ticks) in heads]

    stages: tuple[tuple[str, Choice, float], ...] = (
        ("TERM", leading, _patience(node, remote)),
        ("TERM", lambda seen: () if leading(seen) else seen.ours, ORPHANS),
        ("KILL", lambda seen: seen.ours, CERTAIN),
    )
    for signal, choose, patience in stages:
        if seen.ours:
            by, seen = signal, _end(signal, choose, patience, seen, remote)
    if seen.ours:
        raise _survived(node, seen, remote)
    return f"{len(first)} process{'es' * (len(first) != 1)} ended by {by}{_unreaped(first, seen)}{_swept(left, remote)}"


def _look(remote: Remote, before: Iterable[Process] = ()) -> Seen:
    """Who was known to be ours stays so: what proved it, a parent, say, may have been ended meanwhile."""
    runs, known = remote.place.runs, {(process.pid, process.start_ticks) for process in before}
    found = launched.read(remote, runs)
    return Seen(found, tuple(owned.owned(runs, found.living, found.launches, known)))


def _belongings(seen: Seen, remote: Remote) -> Belongings:
    """The shared memory that they use, which is seen only while they live, and what the runs wrote down of it."""
    before = leftovers.remembered(seen.found)
    if not seen.ours:
        return before
    try:
        return before | leftovers.of(seen.ours, facts.read(remote))
    except RemoteFailed as error:
        remote.say(f"which shared memory they use cannot be seen: {error.what}")
        return before


def _swept(left: Belongings, remote: Remote) -> str:
    """What was removed. Nothing that is left keeps a server from starting, so a failure is told and no more."""
    try:
        removed = leftovers.sweep(remote, left)
    except RemoteFailed as error:
        remote.say(f"shared memory of dead processes cannot be removed: {error.what}")
        return ""
    return f"; {removed}" if removed else ""


def _patience(node: Node, remote: Remote) -> float:
    """Seconds that the server may take to finish its requests. Ranks above 0 have none: their head has ended before,
    and told them to end. SGLang's ignore TERM from 0.5.22 on (entrypoints/engine.py), so that waiting for it is idle.
    """
    patience = node.profile.ready.patience
    return min(patience, FOLLOWERS) if remote.place.follows else patience


def _note(seen: Seen, remote: Remote) -> None:
    """Say in the runs' folders that they were ended, and did not die. No reason not to end them where that fails."""
    ours = {(process.pid, process.start_ticks) for process in seen.ours}
    folders = {process.run for process in seen.ours if process.run}
    folders |= {launch.run for launch in seen.found.launches if (launch.pid, launch.start_ticks) in ours}
    for folder in sorted(folders):
        try:
            remote.write(folder, {"stopped": f"by deploy at {time.strftime('%Y-%m-%d %H:%M:%S')}\n"})
        except RemoteFailed as error:
            remote.say(f"that it is ended cannot be noted: {error.what}")


def _end(signal: str, choose: Choice, patience: float, seen: Seen, remote: Remote) -> Seen:
    """Signal each of those that are chosen once, also who comes up meanwhile, until none lives or time is up."""
    deadline, signalled = time.monotonic() + patience, set[tuple[int, int]]()
    while targets := choose(seen):
        new = [process for process in targets if (process.pid, process.start_ticks) not in signalled]
        groups = ending.whole_groups(targets, seen.found.living) if signal == "KILL" else ()
        seconds = max(0.0, min(SLICE, deadline - time.monotonic()))
        ended = ending.end(remote, signal, new, targets, seconds=seconds, groups=groups)
        if ended.refused:
            raise _refused([process for process in targets if process.pid in ended.refused], remote)
        signalled |= {(process.pid, process.start_ticks) for process in new}
        seen = _look(remote, seen.ours)
        if time.monotonic() > deadline:
            break
        remote.pause(0)
    if left := choose(seen):
        remote.say(f"{len(left)} processes still live {patience:.0f} s after {signal}")
    return seen


def _refused(whom: Iterable[Process], remote: Remote) -> NotReady:
    return NotReady(
        f"{remote.host.name}: processes of this deployment run as another user, whom we may not signal",
        evidence=_lines(whom),
        remedy="only they or root can end them: let root do it, or ask them",
    )


def _survived(node: Node, seen: Seen, remote: Remote) -> NotReady:
    return NotReady(
        f"{remote.host.name}: {len(seen.ours)} processes of {node.deployment} survive KILL",
        evidence=_lines(seen.ours),
        remedy="state D waits in the kernel, for a device or a disk: look at dmesg on the host; a GPU that is wedged "
        "needs its reset, or the host a reboot",
    )


def _lines(processes: Iterable[Process]) -> str:
    return "\n".join(f"{process} (state {process.state})" for process in processes)


def _unreaped(ours: Iterable[Process], seen: Seen) -> str:
    """That some of them are zombies yet: they hold nothing, and it is their parent's to take note of them."""
    found = list(owned.zombies(ours, seen.found.living))
    if not found:
        return ""
    parents = dict.fromkeys(f"pid {parent.pid} ({parent.name})" if parent else "nobody" for _, parent in found)
    are = "is a zombie yet, which holds" if len(found) == 1 else "are zombies yet, which hold"
    reaps = f"until {' and '.join(parents)} reaps {'it' if len(found) == 1 else 'them'}"
    return f"; {len(found)} of them {are} nothing, {reaps}"
