"""Programs of this machine that no key of our terminal reaches: each is in a session of its own."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

HEARD = {-signal.SIGINT, -signal.SIGTERM, -signal.SIGHUP}  # what stops us at the next safe place, and is no end for us


def start(words: Sequence[str], **how: Any) -> subprocess.Popen[Any]:
    """Start a program. A Ctrl-C that comes before it has its session reaches it as well: then it is started again.

    CPython gives the child of a vfork its signals back, with nobody to handle them, before it calls setsid (3.11,
    _posixsubprocess.c: child_exec).
    """
    while _stillborn(child := subprocess.Popen(words, start_new_session=True, **how)):
        with child:  # closes its pipes
            pass
    return child


def _stillborn(child: subprocess.Popen[Any]) -> bool:
    """Whether it ended before it was the program.

    When `Popen` comes back it is on its way to have the program's words, or to have a status and never any words.
    """
    words = Path(f"/proc/{child.pid}/cmdline")
    try:
        while not words.read_bytes():
            with suppress(subprocess.TimeoutExpired):
                return child.wait(0.001) in HEARD
    except OSError:  # macOS, where there is no vfork
        return False
    return False
