"""Which of a host's GPUs a server takes: by CUDA_VISIBLE_DEVICES, the engine's own flags, and how many it is given.

CUDA counts what the variable leaves (CUDA programming guide, "CUDA environment variables"): indices, UUIDs or their
beginnings; everything from the first word that names no device on is invisible; a device that stands twice hides all.
nvidia-smi counts as the bus does, and CUDA by speed unless CUDA_DEVICE_ORDER=PCI_BUS_ID; GPUs of one model are alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deploy.engines._ports import Said
from deploy.facts.gpus import Gpu
from deploy.plan import Node

VARIABLE, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"


@dataclass(frozen=True)
class Taken:
    """The GPUs that a server will use, in the order of its ranks.

    `wrong` is why it cannot have so many; `doubt` why they may be other ones; `mig` are MIG instances that it names,
    of whose memory nvidia-smi says nothing by GPU.
    """

    gpus: tuple[Gpu, ...]
    wrong: str = ""
    doubt: str = ""
    mig: tuple[str, ...] = ()


def of(node: Node, found: Sequence[Gpu]) -> Taken:
    """The GPUs of a host that the node takes."""
    said = node.said()
    first, step = _flags(said, node.engine.GPU_FLAGS)
    return taken(node.gpus, said.env, found, first, step)


def taken(count: int, env: Mapping[str, str], found: Sequence[Gpu], first: int = 0, step: int = 1) -> Taken:
    """`count` of the GPUs that the server sees, from the `first` on, every `step`-th."""
    if not count:
        return Taken(())
    said = env.get(VARIABLE)
    seen, mig, wrong = (list(found), [], "") if said is None else _seen(said, found)
    last = first + (count - 1) * step
    gpus = tuple(seen[first : last + 1 : step])
    if mig:
        return Taken(gpus, mig=tuple(mig))
    if last >= len(seen):
        there = f"{len(found)} GPU{'s' * (len(found) != 1)}"
        left = there if said is None else f"{VARIABLE}={said} leaves {len(seen)} of {there}"
        return Taken(gpus, wrong or f"{left}, {last + 1} are wanted")
    return Taken(gpus, doubt=_doubt(said or "", env, found))


def _flags(said: Said, names: tuple[str, ...]) -> tuple[int, int]:
    first, step = (said.number(name) for name in names) if names else (None, None)
    return first or 0, step or 1


def _seen(said: str, found: Sequence[Gpu]) -> tuple[list[Gpu], list[str], str]:
    """(GPUs, MIG instances, what is wrong with the words)."""
    seen: list[Gpu] = []
    mig: list[str] = []
    for word in map(str.strip, said.split(",")):
        named = [gpu for gpu in found if _names(word, gpu)]
        if word.startswith("MIG-"):
            mig.append(word)
        elif len(named) != 1:
            hides = f"{VARIABLE}={said}: {word!r} names no GPU of the host, and hides what follows"
            return seen, mig, hides if word not in ("", "-1") else ""
        elif named[0] in seen:
            return [], mig, f"{VARIABLE}={said}: {word!r} stands twice, which hides all GPUs"
        else:
            seen.append(named[0])
    return seen, mig, ""


def _names(word: str, gpu: Gpu) -> bool:
    return word == str(gpu.index) if word.isdecimal() else word.startswith("GPU-") and gpu.uuid.startswith(word)


def _doubt(said: str, env: Mapping[str, str], found: Sequence[Gpu]) -> str:
    """A choice by number, or by none, among several models."""
    models = {gpu.name for gpu in found}
    if len(models) == 1 or env.get(ORDER) == "PCI_BUS_ID" or said.startswith("GPU-"):
        return ""
    return f"CUDA numbers GPUs of several models ({', '.join(sorted(models))}) by speed, nvidia-smi by bus"
