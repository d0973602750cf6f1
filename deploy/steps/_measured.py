"""What looks at a host's ports and GPUs come to: what is free, what does not come free, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deploy import looking
from deploy.engines import _ports
from deploy.engines._ports import Port
from deploy.errors import NotReady
from deploy.facts import About, Facts, gpu_health, gpus
from deploy.facts.gpu_health import Health
from deploy.ownership import foreign, visible
from deploy.ownership.foreign import Holder
from deploy.plan import Node
from deploy.remote import Remote

SAME = 64 << 20  # bytes by which two looks at an idle GPU may differ
MENDED = (
    "look at dmesg for Xid lines (79: fallen off the bus; 48, 63, 64, 94, 95: its memory); a GPU like this needs a "
    "reset, or the host a reboot, by whoever runs it"
)


@dataclass(frozen=True)
class Look:
    """What one look showed, so many seconds after the first: who holds what, and each GPU's bytes in use by its index
    (None: it would not say).
    """

    seen: Facts
    waited: float
    ports: Sequence[Port]
    held: Sequence[Holder]
    used: Mapping[int, int | None]
    left: Sequence[Holder] = ()  # others' processes, where nothing is launched and they are in nobody's way

    @property
    def odd(self) -> bool:
        """What a fault of a GPU would explain: memory in use that no process here can be ended for, or not told."""
        return None in self.used.values() or any(
            one.how in ("nobody", "waits") and one.what.startswith("GPU") for one in self.held
        )


def unseen(node: Node, look: Look, patience: float) -> str:
    """Why the GPUs cannot be seen, where that may pass: a driver that is tearing down lets nvidia-smi wait too long."""
    found = look.seen[gpus.FACT]
    waits = node.gpus and found.late and look.waited <= patience
    return f"the GPUs cannot be seen: {found.error}" if waits else ""


def settled(before: Look | None, last: Look) -> bool:
    """Two looks in a row agree: nobody is just starting there, and nothing is still going."""
    if not last.used:
        return True
    if before is None or before.held:
        return False
    pairs = [(before.used.get(index), now) for index, now in last.used.items()]
    return all(then is None or now is None or abs(now - then) <= SAME for then, now in pairs)


@dataclass(frozen=True)
class Fault:
    """What is wrong with a GPU, and whether waiting for it is idle."""

    text: str
    final: bool


def gone(node: Node, look: Look) -> list[Fault]:
    """GPUs that nvidia-smi does not list any more, with its own words."""
    found = look.seen[gpus.FACT]
    wrong = visible.of(node, found.all).wrong if found.all else ""
    if not node.gpus or not found.error or not (wrong or gpus.LOST.search(found.error)):
        return []
    return [Fault(f"a GPU does not answer any more\n{found.error}\n{wrong}".strip(), final=True)]


def faults(node: Node, remote: Remote, look: Look) -> list[Fault]:
    """What the GPUs that the node takes say of themselves. None where they say nothing of it."""
    if not node.gpus:
        return []
    wanted = {gpu.uuid: gpu.index for gpu in foreign.wanted(node, look.seen)}
    found = looking.look(remote, About(), [gpu_health.FACT])[gpu_health.FACT].all or ()
    return [
        Fault(f"GPU {one.index} {text}", final)
        for one in found
        if one.uuid in wanted or one.index in wanted.values()
        for text, final in _faults(one)
    ]


def _faults(one: Health) -> list[tuple[str, bool]]:
    """As the driver tells them; what it calls an action is an order of things: nothing else helps before it."""
    told = (
        (one.lost, "has fallen off the bus", True),
        (one.recovery, f"is to be recovered, the driver says: {one.recovery}", True),
        (one.remap_pending, "has rows of memory that a reset is to replace", False),
        (one.retired_pending, "has pages of memory that a reset is to retire", False),
        (one.uncorrected, f"has had {one.uncorrected} errors of memory (ECC) that could not be corrected", False),
    )
    return [(text, final) for true, text, final in told if true]


def hopeless(found: Sequence[Fault], remote: Remote) -> None:
    """NotReady where a fault will not pass."""
    if any(fault.final for fault in found):
        raise NotReady(
            f"{remote.host.name}: a GPU cannot be freed by waiting",
            evidence="\n".join(fault.text for fault in found),
            remedy=MENDED,
        )


def not_free(remote: Remote, first: Look, last: Look, found: Sequence[Fault]) -> NotReady:
    """The error after the last look: who holds what, whether it moves, and what the GPUs say of themselves."""
    title = foreign.TITLES[last.held[0].how] if last.held else "what its GPUs have in use does not settle"
    return NotReady(
        f"{remote.host.name}: not free after {last.waited:.0f} s: {title}",
        evidence="\n".join([*map(str, last.held), *_trend(first, last), *(fault.text for fault in found)]),
        remedy="\n".join(filter(None, (foreign.remedy(last.held), MENDED if found else ""))),
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


def measured(first: Look, last: Look, ended: Sequence[int]) -> dict[str, Any]:
    """For the record."""
    return {
        "seconds": round(last.waited, 3),
        "ports": [port.number for port in last.ports],
        "ended": list(ended),
        "bytes_before": dict(first.used),
        "bytes_after": dict(last.used),
    }


def in_words(node: Node, first: Look, last: Look) -> str:
    """For people: what was not seen is not called free."""
    words, found = _ports.spans(last.ports), last.seen[gpus.FACT]
    if last.left:
        others = ", ".join(
            dict.fromkeys(f"pid {one.process.pid} of {one.process.user}" for one in last.left if one.process)
        )
        return f"what was ours is free, measured; not ours, and left alone: {others}"
    if not node.gpus:
        return f"{words} free, measured"
    if found.all is None:
        return f"{words} free, measured; the GPUs cannot be seen"
    if visible.of(node, found.all).mig:
        return f"{words} free, measured; what MIG instances have in use is not told"
    if untold := [index for index, value in last.used.items() if value is None]:
        return f"{words} free, measured; no process is on the GPUs, and {_gpus(untold)} not tell what is in use"
    before, after = (sum(value or 0 for value in look.used.values()) >> 20 for look in (first, last))
    return f"{words} and {node.gpus} GPUs free, measured: {before} MiB in use, {after} after {last.waited:.1f} s"


def _gpus(indices: Sequence[int]) -> str:
    return f"GPU{'s' * (len(indices) > 1)} {', '.join(map(str, indices))} do{'es' * (len(indices) == 1)}"
