"""Flags as data: what the engine sets and what the profile says become one command line, without doubles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deploy.text.words import HomePath, RunPath, Word


def words(aliases: Mapping[str, str], *layers: Mapping[str, Any]) -> tuple[Word, ...]:
    """`--flag value` words of the layers; a later layer wins, under whichever of its `aliases` it names a flag.

    True is a bare flag; False, None and an empty list leave it out. A flag is written by its full name; what stands
    behind a dot in it is a key of its own (vLLM's), and stays as it is.
    """
    merged: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.items():
            flag, dot, key = name.lstrip("-").partition(".")
            plain = f"{flag.replace('_', '-')}{dot}{key}"
            merged[aliases.get(plain, plain)] = value
    return tuple(word for name, value in merged.items() for word in _flag(name, value))


def spelled(table: Mapping[str, str]) -> dict[str, str]:
    """{alias: full name} of a table {full name: "its aliases"}."""
    return {alias: full for full, others in table.items() for alias in others.split()}


def _flag(name: str, value: Any) -> tuple[Word, ...]:
    if value is None or value is False or value == []:
        return ()
    if value is True:
        return (f"--{name}",)
    items = value if isinstance(value, list) else [value]
    return (f"--{name}", *(item if isinstance(item, RunPath | HomePath) else text(item) for item in items))


def text(value: Any) -> str:
    """As YAML and JSON write it: true, not True."""
    return str(value).lower() if isinstance(value, bool) else str(value)
