"""SGLang's own words, said by its own code: `PYTHON -m tests.spoken` in the interpreter of an engine, JSON out.

For as many rows of our table of failures as can be had without a GPU and without a server, the function that writes
the line is called. A line is what a logger was given, or the exception's own at the end of a traceback. Only what asks
the hardware, the clock or another process is replaced (`replaced`); what says the line is the installed engine's.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

Say = Callable[[], Any]
CASES: list[tuple[str, str, Say]] = []  # row, the module whose code says it, how it is made to
SRT = "sglang.srt."


def says(row: str, module: str) -> Callable[[Say], Say]:
    """What makes that module of SGLang say a line of a row."""

    def keep(say: Say) -> Say:
        CASES.append((row, module, say))
        return say

    return keep


def module(name: str) -> Any:
    return importlib.import_module(name if name == "torch" else SRT + name)


def replaced(where: Any, **names: Any) -> Any:
    """What asks the hardware, the clock or another process; put back afterwards."""
    return patch.multiple(where, **names)


def alike(**keys: Any) -> Any:
    """An object that has no more than a function reads of it."""
    return SimpleNamespace(**keys)


@contextlib.contextmanager
def killed(number: int) -> Iterator[Any]:
    """A child of ours that a signal ended."""
    child = multiprocessing.get_context("fork").Process(target=signal.pause, daemon=True)
    child.start()
    os.kill(child.pid or 0, number)
    child.join()
    yield child
