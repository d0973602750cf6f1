from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deploy import foreign, host, looking, visible
from deploy.engines import _ports
from deploy.errors import NotReady
from deploy.facts import About, Facts, gpus, processes
from deploy.facts.processes import Process
from deploy.foreign import Holder
from deploy.owned import owned
from deploy.plan import Node
from deploy.remote import Remote

PAUSE = 0.5  # seconds between two looks
SETTLING = 10.0  # seconds beyond its patience for a second look, where the first showed nobody
SAME = 64 << 20  # bytes by which two looks at an idle GPU may differ
# What nvidia-smi says of a GPU that has left the bus; some drivers then name no other one either.
LOST = re.compile("Unable to determine the device handle|GPU is lost|Unknown Error")


@dataclass(frozen=True)
class Look:
    """What one look showed, so many seconds after the first: who holds what, and each GPU's bytes in use by its index
    (None: it would not say).
    """

    seen: Facts
    waited: float
    held: Sequence[Holder]
    used: Mapping[int, int | None]


def free(node: Node, remote: Remote) -> str:
    """Wait until its ports and its GPU memory are free, measured"""
    started, patience = time.monotonic(), node.profile.ready.patience
    before, first = None, _look(node, remote, started)
    last = first
    ended: set[int] = set()
    while last.held or not _settled(before, last):
        others = foreign.others(last.held, owned(remote.place.runs, last.seen[processes.FACT]))
        _refuse(node, remote, others, last.seen)
        if last.waited > patience + (0 if last.held else SETTLING):
            raise _not_free(remote, first, last)
        ended |= _evict(others, "TERM" if last.waited < patience / 2 else "KILL", remote)
        if last.held:
            remote.say(f"waiting: {str(last.held[0]).splitlines()[0]}")
        remote.pause(PAUSE)
        before, last = last, _look(node, remote, started)
    return _told(node, remote, first, last, sorted(ended))


def _look(node: Node, remote: Remote, started: float) -> Look:
    ports = foreign.ports(node, remote.place.engine)
    seen = looking.look(remote, About(), foreign.WANTED)
    _broken(node, remote, seen)
    taken = foreign.wanted(node, seen) if node.gpus else ()
    used = {gpu.index: None if gpu.memory_used_mib is None else gpu.memory_used_mib << 20 for gpu in taken}
    return Look(seen, time.monotonic() - started, foreign.holders(node, ports, seen), used)


def _settled(before: Look | None, last: Look) -> bool:
    """Two looks in a row agree: nobody is just starting there, and nothing is still going."""
    if not last.used:
        return True
    if before is None or before.held:
        return False
    pairs = [(before.used.get(index), now) for index, now in last.used.items()]
    return all(then is None or now is None or abs(now - then) <= SAME for then, now in pairs)


def _broken(node: Node, remote: Remote, seen: Facts) -> None:
    """A GPU that no waiting brings back."""
    found = seen[gpus.FACT]
    wrong = visible.of(node, found.all).wrong if found.all else ""
    if node.gpus and found.error and (wrong or LOST.search(found.error)):
        raise NotReady(
            f"{remote.host.name}: a GPU does not answer any more",
            evidence=f"{found.error}\n{wrong}".strip(),
            remedy="look at dmesg for Xid lines (79: fallen off the bus; 48, 63, 64, 94, 95: its memory); it needs a "
            "reset of the GPU, or a reboot, by whoever runs the host. Waiting does not help",
        )


def _refuse(node: Node, remote: Remote, others: Sequence[Holder], seen: Facts) -> None:
    """Nobody else's process is touched that nobody gave away, or that is not ours to end."""
    living = seen[processes.FACT]
    kept = [one for one in others if not node.profile.evict or foreign.unendable(one.process, living)]
    if kept:
        raise NotReady(
            f"{remote.host.name}: {foreign.TITLES['process']}",
            evidence="\n".join(map(str, kept)),
            remedy=foreign.whose(kept, living),
        )


def _not_free(remote: Remote, first: Look, last: Look) -> NotReady:
    title = foreign.TITLES[last.held[0].how] if last.held else "what its GPUs have in use does not settle"
    return NotReady(
        f"{remote.host.name}: not free after {last.waited:.0f} s: {title}",
        evidence="\n".join([*map(str, last.held), *_trend(first, last)]),
        remedy=foreign.remedy(last.held),
    )


def _trend(first: Look, last: Look) -> list[str]:
    """Whether waiting longer could help."""
    lines = []
    for index, now in last.used.items():
        then = first.used.get(index)
        if now is not None and then is not None and max(now, then) > SAME:
            how = "it does not move" if abs(now - then) <= SAME else "it falls" if now < then else "it grows"
            lines.append(f"GPU {index}: {then >> 20} MiB at first, {now >> 20} MiB after {last.waited:.0f} s: {how}")
    return lines


def _evict(others: Sequence[Holder], signal: str, remote: Remote) -> set[int]:
    targets: dict[int, Process] = {one.process.pid: one.process for one in others if one.process}
    if targets:
        pairs = [[process.pid, process.start_ticks] for process in targets.values()]
        remote.change_python(host.source("end"), signal, json.dumps(pairs))
    return set(targets)


def _told(node: Node, remote: Remote, first: Look, last: Look, ended: Sequence[int]) -> str:
    """What was measured: into the record, and in words."""
    ports = foreign.ports(node, remote.place.engine)
    freed = {
        "seconds": round(last.waited, 3),
        "ports": [port.number for port in ports],
        "ended": list(ended),
        "bytes_before": dict(first.used),
        "bytes_after": dict(last.used),
    }
    remote.say(f"free after {last.waited:.1f} s", freed=freed)
    words, found = _ports.spans(ports), last.seen[gpus.FACT]
    if not node.gpus:
        return f"{words} free, measured"
    if found.all is None:
        return f"{words} free, measured; the GPUs cannot be seen"
    if visible.of(node, found.all).mig:
        return f"{words} free, measured; what MIG instances have in use is not told"
    before, after = (sum(value or 0 for value in look.used.values()) >> 20 for look in (first, last))
    return f"{words} and {node.gpus} GPUs free, measured: {before} MiB in use, {after} after {last.waited:.1f} s"
