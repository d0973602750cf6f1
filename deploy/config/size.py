"""Amounts of memory: `1G`, `512 MiB`, `1.5GB`, or a plain number of bytes."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import Any

GRAMMAR = r"^\s*\d+(\.\d+)?\s*([KMGTkmgt]([iI]?[Bb])?|[Bb])?\s*$"
_POWERS = MappingProxyType({"": 0, "K": 1, "M": 2, "G": 3, "T": 4})


def parse(value: Any) -> Any:
    """Bytes, as GNU's tools count them: K and KiB are 1024, KB is 1000, k is K. What is no text is left as it is."""
    if not isinstance(value, str):
        return value
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(?:([KMGT])(I?B)?|B)?", value.strip().upper())
    if found is None:
        raise ValueError(f"should be a number and a unit, as in 512M or 1 GiB, not {value!r}")
    base = 1000 if found[3] == "B" else 1024
    return round(float(found[1]) * base ** _POWERS[found[2] or ""])


def shown(size: int) -> str:
    """The shortest exact way to write it: 1G, 1500M, 1000001."""
    for unit in "TGMK":
        if size and size % 1024 ** _POWERS[unit] == 0:
            return f"{size // 1024 ** _POWERS[unit]}{unit}"
    return str(size)
