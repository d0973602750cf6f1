"""Ctrl-C, a closed terminal and a cancelled job, heard in the middle of anything and without breaking it off."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

STOPS = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)


@contextmanager
def heard(act: Callable[[], None]) -> Iterator[None]:
    """Have `act` called at each, between two instructions of the main thread; after that each is a KeyboardInterrupt.

    That may be raised anywhere, and what is half done then is a line of the record, or a lock of the terminal.
    """
    wanted = [number for number in STOPS if signal.getsignal(number) != signal.SIG_IGN]  # nohup, and a shell's `&`
    try:
        for number in wanted:
            signal.signal(number, lambda *_: act())
        yield
    finally:
        for number in wanted:
            signal.signal(number, signal.default_int_handler)
