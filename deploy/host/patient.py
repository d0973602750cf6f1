"""Reading what may never answer: a part of programs, no program.

A process that waits in the kernel (state D) may hold the lock of its memory map, and whoever reads its command line,
its environment or its maps waits with it. It is left behind; that wait is killable, and ends with our program.
Runs on the host: Python >= 3.8, standard library only.
"""

from __future__ import annotations

import threading
import time
from typing import Any

ALL = 3.0  # seconds that all such processes together may take


class Patience:
    """For one look at a host."""

    def __init__(self, seconds: float = ALL) -> None:
        self.left = seconds

    def read(self, state: str, function: Any, *args: Any) -> Any:
        """What the function gives or raises, at once unless the process is in state D; None where no answer comes."""
        if state != "D":
            return function(*args)
        answers: list[Any] = []
        thread = threading.Thread(target=lambda: answers.append(attempt(function, *args)), daemon=True)
        began = time.monotonic()
        thread.start()
        thread.join(self.left)
        self.left = max(0.05, self.left - (time.monotonic() - began))
        if answers and isinstance(answers[0], OSError):
            raise answers[0]
        return answers[0] if answers else None


def attempt(function: Any, *args: Any) -> Any:
    try:
        return function(*args)
    except OSError as error:
        return error
