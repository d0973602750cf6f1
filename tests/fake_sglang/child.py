"""A scheduler of the fake server, as a program: TITLE child.py LIFETIME FD [--dies].

It bears a title, tells its pid, and waits. With `--dies`, it goes with its parent (as SGLang's: PDEATHSIG).
"""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from pathlib import Path


def child(lifetime, tell, dies=""):
    libc, title = ctypes.CDLL(None), Path("/proc/self/cmdline").read_bytes().partition(b"\0")[0]
    libc.prctl(15, title)  # PR_SET_NAME, as setproctitle does: its first 15 bytes
    if dies:
        libc.prctl(1, signal.SIGKILL)
    with os.fdopen(int(tell), "w") as answer:
        answer.write(f"{os.getpid()}\n")
    time.sleep(float(lifetime))


if __name__ == "__main__":
    child(*sys.argv[1:])
