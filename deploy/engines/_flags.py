"""Flags as data: what the engine sets and what the profile says become one command line, without doubles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deploy.words import RunPath, Word


def words(*layers: Mapping[str, Any]) -> tuple[Word, ...]:
    """`--flag value` words of the layers; a later layer wins. True is a bare flag; False and None leave it out."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.items():
            merged[name.lstrip("-").replace("_", "-")] = value
    return tuple(word for name, value in merged.items() for word in _flag(name, value))


def _flag(name: str, value: Any) -> tuple[Word, ...]:
    if value is None or value is False:
        return ()
    if value is True:
        return (f"--{name}",)
    if isinstance(value, list | tuple):
        return (f"--{name}", *(str(item) for item in value))
    return (f"--{name}", value if isinstance(value, RunPath) else str(value))
