"""How full and how busy a host's GPUs are: what changes from one look to the next."""

from __future__ import annotations

from dataclasses import dataclass

# Names come last: they may hold commas.
COMMAND = (
    "nvidia-smi",
    "--query-gpu=index,uuid,memory.total,memory.used,utilization.gpu,name",
    "--format=csv,noheader,nounits",
)
WIDTH = 6


@dataclass(frozen=True)
class Load:
    """One GPU; None is what it would not say. `busy`: percent of the last moments in which a kernel ran on it."""

    index: int
    uuid: str
    name: str
    memory_total_mib: int | None
    memory_used_mib: int | None
    busy: int | None


def parse(text: str) -> tuple[Load, ...]:
    """The GPUs in the answer to COMMAND; what else it said is for `facts/gpus` to tell."""
    rows = ([cell.strip() for cell in line.split(",", WIDTH - 1)] for line in text.splitlines())
    return tuple(
        Load(int(row[0]), row[1], row[5], _number(row[2]), _number(row[3]), _number(row[4]))
        for row in rows
        if len(row) == WIDTH and row[0].isdigit() and row[1].startswith(("GPU-", "MIG-"))
    )


def _number(cell: str) -> int | None:
    return int(cell) if cell.isdigit() else None
