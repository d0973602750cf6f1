"""Numbers out of a server's answer: whatever is no count is not told, and never taken for one."""

from __future__ import annotations

from typing import Any

LARGEST = 1 << 53  # what a JSON number keeps exactly


def count(value: Any) -> int | None:
    """The value where it is a whole number from 0 on; True is none."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= LARGEST else None


def word(value: Any) -> str | None:
    """The value where it is a string with something in it."""
    return value if isinstance(value, str) and value else None


def part(document: Any, name: str) -> dict[str, Any]:
    """The object under that name, or an empty one where there is none."""
    found = document.get(name) if isinstance(document, dict) else None
    return found if isinstance(found, dict) else {}
