"""A log that is lying around: read within bounds, and recognised as some engine's."""

from __future__ import annotations

import errno
import sys
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from deploy import engines
from deploy.engines._log import lines
from deploy.errors import ConfigError

HEAD, TAIL = 4 << 20, 12 << 20  # bytes that are looked at: how it began, and how it ended
PIECE = 1 << 20
LOOKED = 4000  # lines at each end by which an engine is recognised
SERVER_LOG = "server.log"


def read(place: str) -> str:
    """The log in a file, in the folder of a run, or (`-`) on stdin: its first 4 MiB and its last 12 MiB.

    ConfigError where it cannot be read, or is empty.
    """
    try:
        if place == "-":
            found = _bounded(sys.stdin.buffer)
        else:
            path = Path(place).expanduser()
            with (path / SERVER_LOG if path.is_dir() else path).open("rb") as file:
                found = _bounded(file)
    except OSError as error:
        remedy = "deploy explain LOGFILE; without a file it looks at what runs on the hosts"
        raise ConfigError(
            f"{place}: cannot be read: {error.strerror or errno.errorcode.get(error.errno or 0, error)}", remedy=remedy
        ) from error
    if not found.strip():
        raise ConfigError(f"{'stdin' if place == '-' else place}: is empty", remedy="deploy logs | deploy explain -")
    return found


def _bounded(file: BinaryIO) -> str:
    head, tail, size, cut = file.read(HEAD), deque[bytes](), 0, 0
    if file.seekable():
        end = file.seek(0, 2)
        begin = max(len(head), end - TAIL)
        file.seek(begin)
        cut = begin - len(head)
    while data := file.read(PIECE):
        tail.append(data)
        size += len(data)
        while size - len(tail[0]) >= TAIL:
            cut += len(tail[0])
            size -= len(tail.popleft())
    gap = f"\n[deploy: {cut} bytes are left out]\n".encode() if cut else b""
    return b"".join([head, gap, *tail]).decode(errors="replace")


def recognised(log: str, known: engines.All) -> str:
    """The name of the engine that wrote it; `command` where it shows none."""
    told = lines(log)
    looked = told if len(told) <= 2 * LOOKED else [*told[:LOOKED], *told[-LOOKED:]]
    counted = {name: _count(looked, engine) for name, engine in known.items()}
    name = max(counted, key=lambda name: counted[name])
    return name if counted[name] else "command"


def _count(looked: Iterable[str], engine: engines.Engine) -> int:
    return sum(bool(engine.DIALECT.own.search(line)) for line in looked)
