"""A part of host programs: what files of /sys and /proc say. What they do not say is null, never a guess."""

# Goes to hosts with the programs that import it: standard library only, Python 3.8 or newer.

from __future__ import annotations

import os

LONGEST = 1 << 20  # bytes


def word(path: str) -> str | None:
    """A file's text; null where it has none, as the speed of a link that is down is refused with EINVAL."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(LONGEST).strip()
    except OSError:
        return None


def linked(path: str) -> str | None:
    """The last part of what a link leads to."""
    try:
        return os.path.basename(os.readlink(path))
    except OSError:
        return None


def listed(path: str) -> list[str] | None:
    """What is in a folder: [] where it is not there, null where it may not be listed."""
    try:
        return sorted(os.listdir(path))
    except FileNotFoundError:
        return []
    except OSError:
        return None
