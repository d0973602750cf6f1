"""What a shell sees in a text: numbers, patterns, and what they cut off. All of it in linear time but for `trimmed`."""

from __future__ import annotations

import fnmatch
import re

NUMBER = re.compile(r"0|[1-9]\d{0,17}", re.ASCII)  # what a shell's 64 bits hold, and no octal one
BRACES = re.compile(r"\{([^{}\s]*)\}")


def expands(bare: str) -> bool:
    """Whether unquoted text may become other words: `*`, `?`, `[a-c]`, `{a,b}`, `{1..3}`."""
    bracket = bare.find("[")
    braces = any("," in inside or ".." in inside for inside in BRACES.findall(bare))
    return "*" in bare or "?" in bare or braces or -1 < bracket < bare.rfind("]") - 1


def trimmed(value: str, operation: str, pattern: str) -> str:
    """Without the shortest (one sign) or the longest prefix (#) or suffix (%) that fits."""
    lengths = range(len(value) + 1) if len(operation) == 1 else range(len(value), -1, -1)
    for length in lengths:
        start, end = (length, len(value)) if operation[0] == "#" else (0, len(value) - length)
        cut = value[:start] if operation[0] == "#" else value[end:]
        if fnmatch.fnmatchcase(cut, pattern):
            return value[start:end]
    return value
