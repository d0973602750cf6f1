"""Work on many files by a few processes: a part of programs, no program. Standard library, Python 3.8.

To parse JSON is Python's own work, which threads do one after the other.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

WORKERS, FEW = 4, 8  # processes at most, and files for each at least


def spread(work: Callable[[str], tuple[Any, ...]], names: list[str]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """(name, what `work` makes of it), in order; what it makes is plain: numbers, texts, lists, tuples, dicts.

    The processes begin at once, and the caller may do something else meanwhile. Beside other threads there are none:
    a lock that one of them holds would never be let go in a process that is forked.
    """
    alone = threading.active_count() == 1
    workers = min(WORKERS, os.cpu_count() or 1, len(names) // FEW) if alone else 1
    pipes = []
    for number in range(workers if workers > 1 else 0):
        out, into = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                _tell(into, [(name, work(name)) for name in names[number::workers]])
            finally:
                os._exit(0)
        os.close(into)
        pipes.append((pid, out))
    return _collected(work, names, pipes)


def _collected(
    work: Callable[[str], tuple[Any, ...]], names: list[str], pipes: list[tuple[int, int]]
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    told: dict[str, tuple[Any, ...]] = {}
    for pid, out in pipes:
        with open(out, "rb") as stream:
            answer = stream.read()
        os.waitpid(pid, 0)
        with contextlib.suppress(EOFError, ValueError, TypeError):  # one that died while it wrote
            told.update(marshal.loads(answer))  # noqa: S302 (of our own child)
    for name in names:
        yield name, told.get(name) or work(name)  # what a child died of is told by doing it again


def _tell(into: int, what: Any) -> None:
    with open(into, "wb") as stream:
        marshal.dump(what, stream)
