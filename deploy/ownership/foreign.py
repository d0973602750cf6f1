"""Who holds what a node needs: its ports, its GPUs' memory. Ours and theirs are told apart by the caller."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from deploy.engines._ports import Port
from deploy.facts import Fact, Facts, devices, gpus, processes, sockets
from deploy.facts.devices import Devices
from deploy.facts.gpus import ComputeProcess, Gpu
from deploy.facts.interpreter import Interpreter
from deploy.facts.processes import Process, Processes
from deploy.facts.sockets import Listener
from deploy.ownership import visible
from deploy.plan import Node

WANTED: tuple[Fact[Any], ...] = (processes.FACT, sockets.FACT, gpus.FACT, devices.FACT)  # what is looked at for it

# MiB that nvidia-smi may call used on a GPU that nobody uses: a display's where the card may drive one; else what a
# driver keeps for itself, which those before 510 count as used.
IDLE = ((re.compile("GeForce|RTX|Quadro|TITAN"), 1024), (re.compile(""), 512))
SHARES = "nvidia-cuda-mps-server"[:15]  # it is on the GPU for others, and goes when they do

How = Literal["process", "waits", "hidden", "nobody"]
THEIRS = "somebody else's process holds what we need"
TITLES: Mapping[How, str] = {
    "process": "a process that was to end holds what we need",
    "waits": "a process that the kernel does not let go holds what we need",
    "hidden": "a process that cannot be seen from here holds what we need",
    "nobody": "GPU memory that no process is named for does not come back",
}
REMEDIES: Mapping[How, str] = {
    "process": "it was told to end, and lives: run the command again, or look at it on the host",
    "waits": "a process that waits in the kernel takes no signal: look at dmesg for Xid lines and at the disks it may "
    "wait for; what stays needs a reset of the GPU, or a reboot, by whoever runs the host",
    "hidden": "look for its container on the host (docker ps, crictl ps, `nsenter -t PID -a`), and stop it there; or "
    "ask who else may use the host",
    "nobody": "the driver may still be tearing down (raise ready.patience), or a container that nvidia-smi may not see "
    "has it (docker ps); memory that nobody has and that does not go needs a reset of the GPU by whoever runs the host",
}


@dataclass(frozen=True)
class Holder:
    """What is held, how, and by which process if that can be seen.

    `process`: it is here, and can be asked or ended. `waits`: it is here, in the kernel, and ends when that lets it.
    `hidden`: there is a process, but none of ours to see. `nobody`: memory is used, and no process is told.
    """

    what: str
    how: How
    process: Process | None = None
    uid: int | None = None  # of a hidden one's socket
    pid: int | None = None  # as the driver tells a hidden one
    mib: int | None = None
    others: tuple[Process, ...] = ()  # who has the GPU's device file open, where nobody is told
    unread: int = 0  # processes of other users, of whom that may not be seen

    def __str__(self) -> str:
        size = f", {self.mib} MiB" if self.mib else ""
        if self.process:
            state = f" (state {self.process.state}: it waits in the kernel)" if self.how == "waits" else ""
            return f"{self.what} is held by {self.process}{_deployment(self.process)}{state}{size}"
        if self.how == "nobody":
            named = "".join(f"\n  has its device file open: {other}" for other in self.others)
            many = f"{self.unread} process{'es' * (self.unread != 1)}"
            named += f"\n  {many} of other users may not be looked at" if self.unread else ""
            return f"{self.what} is held by no process that nvidia-smi names{size}{named}"
        if self.pid is not None:
            return f"{self.what} is held by pid {self.pid} of another pid namespace, as in a container{size}"
        whose = "another namespace's" if self.uid is None else f"of user id {self.uid}"
        return f"{self.what} is held by a process that cannot be seen from here ({whose})"


def holders(node: Node, ports: Sequence[Port], seen: Facts) -> list[Holder]:
    """Everything that keeps the node from starting. What cannot be seen counts as held, never as free."""
    living = seen[processes.FACT]
    return [*_ports(ports, seen, living), *(_memory(node, seen, living) if node.gpus else ())]


def ports(node: Node, installed: Interpreter | None) -> tuple[Port, ...]:
    """The ports that the node's server will bind, by the engine's version that is installed."""
    return node.engine.ports(node.said(installed.installed if installed else None))


def others(held: Iterable[Holder], ours: Iterable[Process]) -> list[Holder]:
    """What is held by processes that can be seen and are not ours."""
    known = {(process.pid, process.start_ticks) for process in ours}
    return [one for one in held if one.process and (one.process.pid, one.process.start_ticks) not in known]


def unendable(one: Holder, living: Processes) -> str:
    """Why its process is not ours to end; "" where it is."""
    process, us = one.process, _process(living, living.asked_by)
    if process and process.pid in living.ancestors(living.asked_by):
        return "this command itself runs under it"
    uid = process.uid if process else one.uid
    if uid is None or us is None:
        return "it cannot be seen from here"
    if us.uid not in (0, uid):
        return "it is another user's, whom only they or root can end"
    return "" if process else "it is in another pid namespace, as in a container"


def whose(held: Sequence[Holder], living: Processes) -> str:
    """What can be done about processes of somebody else."""
    reasons = dict.fromkeys(filter(None, (unendable(one, living) for one in held)))
    ways = "ask its owner, or choose another port or other GPUs (CUDA_VISIBLE_DEVICES)"
    return f"{'; '.join(reasons)}: {ways}" if reasons else f"{ways}, or take it with evict=yes"


def remedy(held: Iterable[Holder]) -> str:
    """What can be done, once for each way in which something is held."""
    return "\n".join(dict.fromkeys(REMEDIES[one.how] for one in held))


def deployments(held: Iterable[Holder]) -> list[str]:
    """Of whose deployments the holders are, each once; none where one of them is of none."""
    named = [_owner(one.process) if one.process else "" for one in held]
    return list(dict.fromkeys(named)) if all(named) else []


def wanted(node: Node, seen: Facts) -> tuple[Gpu, ...]:
    """The GPUs that the node takes, of those that are seen."""
    return visible.of(node, seen[gpus.FACT].all or ()).gpus


def idle_mib(gpu: Gpu) -> int:
    """What may be used on it while nobody uses it."""
    return next(mib for pattern, mib in IDLE if pattern.search(gpu.name))


def _ports(ports: Iterable[Port], seen: Facts, living: Processes) -> Iterator[Holder]:
    us = _process(living, living.asked_by)
    listening: tuple[Listener, ...] = seen[sockets.FACT]
    for port in ports:
        what = f"port {port.number}{'' if port.what == 'HTTP' else f' ({port.what})'}"
        for listener in sockets.on(port.number, listening):
            for pid in listener.pids or (None,):
                process = _process(living, pid)
                other = listener.uid if us and listener.uid != us.uid else None
                yield Holder(what, _how(process), process, other)


def _memory(node: Node, seen: Facts, living: Processes) -> Iterator[Holder]:
    found = seen[gpus.FACT]
    taken = visible.of(node, found.all or ())
    for name in taken.mig:
        for holder in found.holders or ():
            if holder.gpu_uuid.startswith(name):
                yield _listed(name, holder, seen, living)
    for gpu in taken.gpus:
        listed = [holder for holder in found.holders or () if holder.gpu_uuid == gpu.uuid]
        there = [holder for holder in listed if not _shares(holder, living)]
        yield from (_listed(f"GPU {gpu.index}", holder, seen, living) for holder in there)
        if unnamed := _unnamed(gpu, listed):
            yield _nobody(gpu, unnamed, seen[devices.FACT], living)


def _nobody(gpu: Gpu, mib: int, opened: Devices, living: Processes) -> Holder:
    """Whoever has the device file open may be it, and may as well only look on."""
    named = (_process(living, pid) for pid in opened.on(gpu.uuid))
    users = tuple(process for process in named if process and process.name not in devices.DAEMONS)
    return Holder(f"GPU {gpu.index}", "nobody", mib=mib, others=users, unread=len(opened.unread))


def _unnamed(gpu: Gpu, listed: Sequence[ComputeProcess]) -> int | None:
    """MiB beyond what the listed processes say that they have, and beyond what an idle GPU has."""
    if gpu.memory_used_mib is None or any(holder.used_mib is None for holder in listed):
        return None
    rest = gpu.memory_used_mib - sum(holder.used_mib or 0 for holder in listed)
    return rest if rest > idle_mib(gpu) * max(1, len(listed)) else None  # each context costs some that is not told


def _listed(what: str, holder: ComputeProcess, seen: Facts, living: Processes) -> Holder:
    process = _process(living, holder.pid)
    if process and seen[devices.FACT].without(process):
        process = None
    return Holder(what, _how(process), process, pid=holder.pid, mib=holder.used_mib)


def _shares(holder: ComputeProcess, living: Processes) -> bool:
    process = _process(living, holder.pid)
    return bool(process and process.name == SHARES)


def _how(process: Process | None) -> How:
    if process is None:
        return "hidden"
    return "waits" if process.state in "DZX" else "process"


def _deployment(process: Process) -> str:
    return f" (deployment {_owner(process)})" if _owner(process) else ""


def _owner(process: Process) -> str:
    """Of a run of the tool's, the deployment: its folder is WORK/MACHINE/DEPLOYMENT/runs/ID."""
    folders = (process.run or "").split("/")
    return folders[-3] if len(folders) > 3 and folders[-2] == "runs" else ""


def _process(living: Processes, pid: int | None) -> Process | None:
    return next((process for process in living.all if process.pid == pid), None)
