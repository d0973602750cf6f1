"""Who holds what a node needs: its port, its GPUs' memory. Ours and theirs are told apart by the caller."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from deploy.facts import gpus, sockets
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
    other_uid: int | None = None  # of another user, whose process may be hidden from us

    def __str__(self) -> str:
        whose = "another user's, or another namespace's" if self.other_uid is None else f"of user id {self.other_uid}"
        return f"{self.what} is held by {self.process or f'a process that cannot be seen from here ({whose})'}"


def holders(node: Node, remote: Remote, living: Processes) -> list[Holder]:
    """Everything that keeps the node from starting. What cannot be seen counts as held, never as free."""
    return [*_port(node, remote, living), *(_memory(node, remote, living) if node.gpus else ())]


def _port(node: Node, remote: Remote, living: Processes) -> Iterator[Holder]:
    us = _process(living, living.asked_by)
    for listener in sockets.on(node.port, sockets.read(remote)):
        for pid in listener.pids or (None,):
            other = listener.uid if us and listener.uid != us.uid else None
            yield Holder(f"port {node.port}", _process(living, pid), other)


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
