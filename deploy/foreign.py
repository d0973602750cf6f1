"""Who holds what a node needs: its port, its GPUs' memory. Ours and theirs are told apart by the caller."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from deploy.facts import gpus, processes, sockets
from deploy.facts.gpus import Gpu
from deploy.facts.processes import Process, Processes
from deploy.plan import Node
from deploy.remote import Remote

IDLE_MIB = 1024  # what a driver and its contexts may keep on a GPU that nobody uses


@dataclass(frozen=True)
class Holder:
    """What is held, and by which process if that can be seen."""

    what: str
    process: Process | None

    def __str__(self) -> str:
        who = self.process or "a process that cannot be seen from here (another user's, or another namespace's)"
        return f"{self.what} is held by {who}"


def holders(node: Node, remote: Remote) -> list[Holder]:
    """Everything that keeps the node from starting. What cannot be seen counts as held, never as free."""
    living = processes.read(remote)
    return [*_port(node, remote, living), *(_memory(node, remote, living) if node.gpus else ())]


def _port(node: Node, remote: Remote, living: Processes) -> Iterator[Holder]:
    for listener in sockets.on(node.port, sockets.read(remote)):
        for pid in listener.pids or (None,):
            yield Holder(f"port {node.port}", _process(living, pid))


def _memory(node: Node, remote: Remote, living: Processes) -> Iterator[Holder]:
    found = gpus.read(remote)
    wanted = {gpu.uuid: gpu for gpu in (found.all or ())[: node.gpus]}
    seen = set()
    for holder in found.holders or ():
        if holder.gpu_uuid in wanted:
            seen.add(holder.gpu_uuid)
            yield Holder(_named(wanted[holder.gpu_uuid]), _process(living, holder.pid))
    for uuid, gpu in wanted.items():
        if uuid not in seen and (gpu.memory_used_mib or 0) > IDLE_MIB:
            yield Holder(f"{_named(gpu)} ({gpu.memory_used_mib} MiB)", None)


def _named(gpu: Gpu) -> str:
    return f"GPU {gpu.index}"


def _process(living: Processes, pid: int | None) -> Process | None:
    return next((process for process in living.all if process.pid == pid), None)
