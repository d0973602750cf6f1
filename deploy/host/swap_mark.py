"""What a hand-over leaves on its host: its mark, the fence that it looks at, links: a part of programs, no program.

Standard library, Python 3.8.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from typing import Any

MARKER = "swap.json"


class Lapsed(Exception):
    """The lock is not ours any more: somebody else may act on this host."""


class Fence:
    """The lock's file; its first line is the token of who holds it."""

    def __init__(self, lock: str, token: str) -> None:
        self.lock, self.token = lock, token

    def check(self) -> None:
        """Lapsed where the token is another."""
        try:
            with open(self.lock, encoding="utf-8", errors="replace") as file:
                first = file.readline().rstrip("\n")
        except OSError:
            first = ""
        if not self.token or first != self.token:
            raise Lapsed


class Mark:
    """`swap.json` in the server's folder. Who finds one does not know what is loaded, and that the server is paused."""

    def __init__(self, folder: str) -> None:
        self.path = os.path.join(folder, MARKER)

    def there(self) -> dict[str, Any] | None:
        """What stands in it, {} where that is nothing; None where there is none."""
        try:
            with open(self.path, encoding="utf-8") as file:
                found = json.load(file)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def write(self, **what: object) -> None:
        """Whole, or not at all."""
        half = f"{self.path}.{os.getpid()}"
        try:
            with open(half, "w", encoding="utf-8") as file:
                json.dump(what, file)
            os.replace(half, self.path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(half)
            raise

    def remove(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)


def link(links: Sequence[Sequence[str]]) -> None:
    """Have each path lead to its target, one after another by rename; on an error they lead where they did."""
    done: list[tuple[str, str | None]] = []
    try:
        for target, path in links:
            before = os.readlink(path) if os.path.lexists(path) else None
            _lead(target, path)
            done.append((path, before))
    except OSError:
        for path, before in reversed(done):
            if before is None:
                os.unlink(path)
            else:
                _lead(before, path)
        raise


def _lead(target: str, path: str) -> None:
    half = f"{path}.{os.getpid()}"
    os.symlink(target, half)
    try:
        os.replace(half, path)
    except OSError:
        os.unlink(half)
        raise
