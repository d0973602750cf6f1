#!/usr/bin/env python3
"""The fake server with much to say: numbered lines among its own, 100 kB a second, for CHATTY seconds."""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import fake_server  # type: ignore[import-not-found]


def talk():
    number, end = 0, time.monotonic() + float(os.environ["CHATTY"])
    while time.monotonic() < end:
        os.write(2, b"".join(b"line %09d %s\n" % (number + i, b"x" * 84) for i in range(10)))
        number += 10
        time.sleep(0.01)
    os.write(2, b"that was all, %d lines\n" % number)


if __name__ == "__main__":
    if "-c" not in sys.argv:  # it plays the interpreter
        threading.Thread(target=talk, daemon=True).start()
    fake_server.main(sys.argv[1:])
