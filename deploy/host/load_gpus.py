"""What GPUs draw and hold while something is measured: nvidia-smi, which tells it again and again."""

from __future__ import annotations

import os
import subprocess
from typing import Any

EVERY = 500  # milliseconds; power.draw is a mean over a second on most GPUs
QUERY = ("nvidia-smi", "--query-gpu=uuid,power.draw,memory.used", "--format=csv,noheader,nounits", "-lms", str(EVERY))
MIB = 1 << 20


class Gpus:
    """`descriptor` has something to `read` now and then; None where there is no nvidia-smi, or nothing to ask it."""

    def __init__(self, uuids: list[str]) -> None:
        self.descriptor: int | None = None
        self._uuids, self._said = uuids, b""
        self._process: subprocess.Popen[bytes] | None = None
        if uuids:
            self._start()

    def _start(self) -> None:
        nothing = subprocess.DEVNULL
        try:
            self._process = process = subprocess.Popen(QUERY, stdin=nothing, stdout=subprocess.PIPE, stderr=nothing)
        except OSError:
            return
        if process.stdout:
            self.descriptor = process.stdout.fileno()

    def read(self) -> bool:
        """Take what it has said; False where it says no more."""
        if self.descriptor is None:
            return False
        data = os.read(self.descriptor, 1 << 16)
        self._said += data
        return bool(data)

    def close(self) -> None:
        """It ends, and with it what it keeps open."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def told(self) -> dict[str, Any]:
        """{"watts": mean of all together, or null, "gpu_bytes": the most in use on all together, or null}."""
        found = [by_uuid(self._said.decode(errors="replace"), uuid) for uuid in self._uuids]
        looks = range(min(map(len, found), default=0))
        watts = together([[one[look][0] for one in found] for look in looks])
        held = together([[one[look][1] for one in found] for look in looks])
        return {
            "watts": sum(watts) / len(watts) if watts else None,
            "gpu_bytes": int(max(held)) * MIB if held else None,
        }


def together(looks: list[list[float | None]]) -> list[float]:
    """The sum over all GPUs at each look at which each of them told it."""
    told = [[value for value in look if value is not None] for look in looks]
    return [sum(values) for values, look in zip(told, looks) if len(values) == len(look)]  # noqa: B905 - 3.8 has none


def by_uuid(text: str, uuid: str) -> list[tuple[float | None, float | None]]:
    """(watts, MiB) of one GPU at each look; a last line may be cut, and counts for nothing."""
    rows = [line.split(", ") for line in text.split("\n")[:-1]]
    return [(number(row[1]), number(row[2])) for row in rows if len(row) == 3 and row[0] == uuid]


def number(cell: str) -> float | None:
    """None for [N/A] and its like."""
    try:
        return float(cell)
    except ValueError:
        return None
