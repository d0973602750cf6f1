from __future__ import annotations

import time
from collections.abc import Sequence

from deploy import looking
from deploy.errors import NotReady
from deploy.facts import About, Facts, processes
from deploy.facts.processes import Process
from deploy.ownership import ending, foreign, theirs
from deploy.ownership.foreign import Holder
from deploy.plan import Node
from deploy.remote import Remote
from deploy.steps._measured import Look, faults, gone, hopeless, in_words, measured, not_free, settled, unseen

PAUSE = 0.5  # seconds between two looks
SETTLING = 10.0  # seconds beyond its patience: for a second look where the first showed nobody, or for who was killed


def free(node: Node, remote: Remote) -> str:
    """Wait until its ports and its GPU memory are free, measured"""
    patience = node.profile.ready.patience
    before, first = None, _look(node, remote, None)
    started = time.monotonic()  # after a look that may have taken long: nobody is given up who was just seen
    last, examined = first, False
    told: dict[Process, float] = {}  # who was told to end, and when
    while last.held or not settled(before, last) or (last.odd and not examined) or unseen(node, last, patience):
        others = theirs.among(last.held, last.seen[processes.FACT], remote)
        _refuse(node, remote, others, last.seen)
        if last.waited > patience + (SETTLING if others or not last.held else 0):
            raise not_free(remote, first, last, faults(node, remote, last))
        if last.odd and not examined:
            hopeless(faults(node, remote, last), remote)
            examined = True
        _evict(others, told, last.waited, patience / 2, remote)
        if why := str(last.held[0]) if last.held else unseen(node, last, patience):
            remote.say(f"waiting: {why.splitlines()[0]}")
        remote.pause(PAUSE)
        before, last = last, _look(node, remote, started)
    remote.say(f"free after {last.waited:.1f} s", freed=measured(first, last, sorted(one.pid for one in told)))
    ended = ", ".join(f"pid {one.pid} of {one.user}" for one in told)
    return in_words(node, first, last) + (f"; not ours, and ended for it: {ended}" if ended else "")


def _look(node: Node, remote: Remote, started: float | None) -> Look:
    ports = foreign.ports(node, remote.place.engine)
    seen = looking.look(remote, About(), foreign.WANTED)
    taken = foreign.wanted(node, seen) if node.gpus else ()
    used = {gpu.index: None if gpu.memory_used_mib is None else gpu.memory_used_mib << 20 for gpu in taken}
    waited = 0.0 if started is None else time.monotonic() - started
    held, left = foreign.holders(node, ports, seen), []
    if remote.place.adopted:  # nothing is launched after this: what is somebody else's now may be
        left = theirs.among(held, seen[processes.FACT], remote)
    look = Look(seen, waited, ports, [one for one in held if one not in left], used, left)
    hopeless(gone(node, look), remote)
    return look


def _refuse(node: Node, remote: Remote, others: Sequence[Holder], seen: Facts) -> None:
    """Nobody else's process is touched that nobody gave away, or that is not ours to end."""
    living = seen[processes.FACT]
    kept = [one for one in others if not node.profile.evict or foreign.unendable(one, living)]
    if kept:
        raise NotReady(
            f"{remote.host.name}: {foreign.THEIRS}",
            evidence="\n".join(map(str, kept)),
            remedy=foreign.whose(kept, living),
        )


def _evict(others: Sequence[Holder], told: dict[Process, float], now: float, patience: float, remote: Remote) -> None:
    """TERM for whoever is new, KILL for whoever has had so many seconds to end."""
    targets = dict.fromkeys(one.process for one in others if one.process)
    known = {(one.pid, one.start_ticks): since for one, since in told.items()}
    late = {one for one in targets if now - known.get((one.pid, one.start_ticks), now) >= patience}
    new = [one for one in targets if (one.pid, one.start_ticks) not in known]
    for signal, whom in (("TERM", new), ("KILL", late)):
        if whom:
            ending.end(remote, signal, whom)
    told.update(dict.fromkeys(new, now))
