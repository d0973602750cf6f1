"""/dev/shm, where the ranks of a server talk to each other: NCCL, torch's queues, SGLang's and vLLM's own segments."""

from __future__ import annotations

from collections.abc import Iterator

from deploy.checks import Case
from deploy.checks._words import GIB, gib, ranks
from deploy.facts import memory
from deploy.findings import Finding, Verdict

SEGMENT = 9637892  # bytes of one, each rank has at least one: "failed to extend /dev/shm/nccl-... to 9637892 bytes"
ENOUGH = GIB  # what NVIDIA's NCCL guide and both engines ask for in a container; docker's own is 64 MiB
REMEDY = "in a container: --shm-size=16g, or --ipc=host; else: mount -o remount,size=50% /dev/shm; and see `leftovers`"


def check(case: Case) -> Iterator[Finding]:
    """There, writable, and with room for the ranks of this host."""
    found = case.facts[memory.FACT].shared
    wanted = ranks(case.node) if case.node and case.node.gpus else 1  # NCCL is for GPUs alone
    least = SEGMENT * wanted if wanted > 1 else 0
    if found.free is None or found.total is None:
        verdict: Verdict = "UNKNOWN" if wanted > 1 else "WARN"
        yield Finding("shm", verdict, "/dev/shm cannot be seen", found.error, REMEDY)
        return
    room = f"{gib(found.free)} of {gib(found.total)} are free in /dev/shm"
    if not found.writable:
        yield Finding("shm", "FAIL", "/dev/shm cannot be written to", room, "chmod 1777 /dev/shm")
    elif found.free_inodes == 0 or found.free <= least:
        what = "no inodes are free in /dev/shm" if found.free_inodes == 0 else f"{room}, too little for {wanted} ranks"
        yield Finding("shm", "FAIL", what, "NCCL then ends with: unhandled system error", REMEDY)
    elif found.free < ENOUGH:
        yield Finding("shm", "WARN", f"{room}, {gib(ENOUGH)} should be", remedy=REMEDY)
    elif not found.mounted:
        yield Finding(
            "shm", "WARN", f"/dev/shm is a folder on a disk, so slow; {room}", remedy="mount -t tmpfs tmpfs /dev/shm"
        )
    else:
        yield Finding("shm", "PASS", room)
