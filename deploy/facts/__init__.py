"""What is true on a host right now: one fact a file, each a pair of a question and a pure parser.

A fact is a module with the question (an argv tuple, or the name of a program in `deploy.host`), one or more
`parse(...)` functions that turn the answer into frozen dataclasses without touching anything, and `read(remote, ...)`
that asks and parses. Parsers are tested from captured answers in `tests/fixtures/facts`. What could not be
looked at is None, "unknown" or an `error` in words, never an empty list that reads as "nothing there".
"""

from __future__ import annotations

from typing import Any, Protocol


class Asks(Protocol):
    """As much of a host as a fact needs: run a program, run a Python program."""

    def run(self, *argv: str, ok: tuple[int, ...] = (0,), timeout: float = 30.0) -> str:
        """Its stdout as text. RemoteFailed (with status and stderr) when its exit status is not in `ok`."""

    def python(self, source: str, *args: str, timeout: float = 30.0) -> Any:
        """The JSON that a Python program printed, parsed."""
