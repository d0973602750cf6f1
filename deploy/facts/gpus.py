"""Which GPUs a host has, and which processes hold their memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from deploy.errors import RemoteFailed
from deploy.facts import About, Answer, Asks, Command, Fact, Question

NO_TOOL = "there is no nvidia-smi"
# What it says of a GPU that has left the bus; some drivers then name no other one either.
LOST = re.compile("Unable to determine the device handle|GPU is lost|Unknown Error")
CSV = "--format=csv,noheader,nounits"
# Names come last: they may hold commas.
GPUS = ("nvidia-smi", "--query-gpu=index,uuid,memory.total,memory.used,driver_version,compute_cap,name", CSV)
# Drivers before 510 do not know compute_cap, and then tell nothing at all; what stands in its place is none.
PLAIN = ("nvidia-smi", "--query-gpu=index,uuid,memory.total,memory.used,driver_version,pstate,name", CSV)
CAPABILITY = re.compile(r"\d+\.\d+")
HOLDERS = (
    "nvidia-smi",
    "--query-compute-apps=gpu_uuid,pid,used_gpu_memory,process_name",
    CSV,
)
# Beside the rows, and no reason to doubt them: "WARNING: infoROM is corrupted at gpu 0000:41:00.0".
NOTE = re.compile(r"warning\b|no running processes found", re.IGNORECASE)
# The return values that nvidia-smi's manual names (15: a GPU fell off the bus), 18 (library and driver differ) and 255:
# what is wrong then stands on its stdout, often beside the lines of the healthy GPUs.
STATUSES = (0, 2, 3, 4, 6, 8, 9, 10, 12, 13, 14, 15, 18, 255)


@dataclass(frozen=True)
class Gpu:
    """One GPU; None is what it would not say."""

    index: int
    uuid: str
    name: str
    memory_total_mib: int | None
    memory_used_mib: int | None
    driver: str | None
    compute_cap: str | None  # as "12.0"


@dataclass(frozen=True)
class ComputeProcess:
    """A process that holds memory of a GPU. Its pid may be another namespace's, and so not in our /proc."""

    gpu_uuid: str
    pid: int
    name: str | None
    used_mib: int | None


@dataclass(frozen=True)
class Gpus:
    """What could be seen; None is unknown, never "none there", and `error` says what was wrong, also with a part."""

    all: tuple[Gpu, ...] | None
    holders: tuple[ComputeProcess, ...] | None
    error: str = ""
    late: bool = False  # nvidia-smi had not ended when it was given up: it may do so the next time


def parse(text: str) -> tuple[tuple[Gpu, ...], str]:
    """The GPUs in the answer to GPUS, and whatever else it said."""
    rows, rest = _rows(text, 7)
    return tuple(
        Gpu(int(index), uuid, name, _mib(total), _mib(used), _known(driver), _capability(capability))
        for index, uuid, total, used, driver, capability, name in rows
    ), rest


def parse_holders(text: str) -> tuple[tuple[ComputeProcess, ...], str]:
    """The processes in the answer to HOLDERS, and whatever else it said, so that they may not be all."""
    rows, rest = _rows("\n".join(line for line in text.splitlines() if not NOTE.match(line.strip())), 4)
    return tuple(ComputeProcess(uuid, int(pid), _known(name), _mib(used)) for uuid, pid, used, name in rows), rest


def read(remote: Asks) -> Gpus:
    """Look once, at most 30 s for each of two questions; a missing or broken nvidia-smi is told, not raised.

    Compute capabilities are not asked for.
    """
    try:
        told = {n: Answer(0, remote.run(*argv, ok=STATUSES)) for n, argv in (("gpus", PLAIN), ("holders", HOLDERS))}
    except RemoteFailed as error:
        missing = error.status in (126, 127)
        return Gpus(None, None, NO_TOOL if missing else f"nvidia-smi: {error}")
    return _parse(told)


def _questions(_: About) -> dict[str, Question]:
    return {"gpus": Command(GPUS, otherwise=PLAIN), "holders": Command(HOLDERS)}


def _parse(answers: Mapping[str, Answer]) -> Gpus:
    gpus, holding = answers["gpus"], answers["holders"]
    if gpus.missing or gpus.status is None:
        return Gpus(None, None, NO_TOOL if gpus.missing else f"nvidia-smi: {gpus.err}", late=not gpus.missing)
    found, wrong = parse(gpus.out)
    wrong = wrong or ("" if gpus.status in STATUSES else f"nvidia-smi ended with status {gpus.status}: {gpus.err}")
    holders, wrong_too = parse_holders(holding.out) if found else ((), wrong)
    wrong_too = wrong_too or (holding.err if holding.status is None else "")
    return Gpus(
        found or None,
        holders if not wrong_too else None,
        "\n".join(dict.fromkeys(filter(None, (wrong, wrong_too)))) or ("" if found else "nvidia-smi named no GPU"),
    )


FACT: Fact[Gpus] = Fact("gpus", _questions, _parse)


def _rows(text: str, width: int) -> tuple[list[list[str]], str]:
    """The rows whose first two cells are an index and a uuid, or a uuid and a pid, and all other lines."""
    rows: list[list[str]] = []
    rest: list[str] = []
    for line in filter(str.strip, text.splitlines()):
        cells = [cell.strip() for cell in line.split(",", width - 1)]
        pair = sorted(cells[:2], key=str.isdigit)  # a uuid is no number
        fits = len(cells) == width and pair[1].isdigit() and pair[0].startswith(("GPU-", "MIG-"))
        if fits:
            rows.append(cells)
        else:
            rest.append(line.strip())
    return rows, "\n".join(rest)


def _known(cell: str) -> str | None:
    """[N/A], [Not Found], [Not Supported], [Insufficient Permissions], [Unknown Error]: it would not say."""
    return None if cell.startswith("[") or cell == "N/A" else cell


def _capability(cell: str) -> str | None:
    return cell if CAPABILITY.fullmatch(cell) else None


def _mib(cell: str) -> int | None:
    return int(cell) if cell.isdigit() else None
