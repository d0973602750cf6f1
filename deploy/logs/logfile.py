"""A log that is lying around: read within bounds, and recognised as some engine's."""

from __future__ import annotations

import errno
import json
import re
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
# What keeps or carries logs puts this in front of each line: a cluster, a container's runtime, a journal, a search.
CLOCK = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d) "
UNIT = r"\S+ [^\s\[\]:]+(?:\[\d+\])?: "
WRAPPED = tuple(
    re.compile(rf"(?m)^\ufeff?(?:{front})")
    for front in (
        rf"{CLOCK}{UNIT}",  # journalctl -o short-iso, and syslog of today
        rf"[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)? {UNIT}",  # journalctl, and syslog of old
        rf"{CLOCK}(?:std(?:out|err) [FP] )?",  # docker logs -t, kubectl logs --timestamps, /var/log/pods
        r"\[pod/[^\s\]]+\] ",  # kubectl logs --prefix
        r"(?:\x1b\[[\d;]*m)?[\w.-]+ +\| (?:\x1b\[[\d;]*m)?",  # docker compose logs
        r"\d+: ",  # srun --label
        r"\S+\.log:(?:\d+:)?|\d+:| *\d+\t",  # grep -H, grep -n, cat -n
    )
)
SAMPLE = 400  # lines by which it is seen whether there is such a thing
COMPRESSED = {
    b"\x1f\x8b": "zcat",
    b"\xfd7zXZ\x00": "xzcat",
    b"\x28\xb5\x2f\xfd": "zstdcat",
    b"BZh": "bzcat",
    b"\xff\xfe": "iconv -f UTF-16",
    b"\xfe\xff": "iconv -f UTF-16",
}  # by how a file begins: what makes text of it


def read(place: str) -> str:
    """The log in a file, in the folder of a run, or (`-`) on stdin: its first 4 MiB and its last 12 MiB.

    What was put in front of each line on its way is left out. ConfigError where it cannot be read, is empty, or is
    compressed.
    """
    name = "stdin" if place == "-" else place
    try:
        if place == "-":
            found = _bounded(sys.stdin.buffer)
        else:
            path = Path(place).expanduser()
            path = path / SERVER_LOG if path.is_dir() else path
            name = str(path)
            with path.open("rb") as file:
                found = _bounded(file)
    except OSError as error:
        remedy = "deploy explain LOGFILE; without a file it looks at what runs on the hosts"
        raise ConfigError(
            f"{name}: cannot be read: {error.strerror or errno.errorcode.get(error.errno or 0, error)}", remedy=remedy
        ) from error
    if not found.strip():
        remedy = "deploy explain LOGFILE; deploy explain profile=NAME looks at what runs on the hosts"
        raise ConfigError(f"{name}: is empty", remedy=remedy)
    for begin, program in COMPRESSED.items():
        if found.startswith(begin):
            remedy = f"{program} {'' if place == '-' else place} | deploy explain -"
            raise ConfigError(f"{name}: is no text that can be read as it is", remedy=" ".join(remedy.split()))
    return bare(found.decode(errors="replace"))


def _bounded(file: BinaryIO) -> bytes:
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
    return b"".join([head, gap, *tail])


def bare(log: str) -> str:
    """The log without what was put in front of (nearly) each of its lines, also where that was done twice."""
    if log.startswith('{"log":'):
        log = "".join(map(_unpacked, log.splitlines(keepends=True)))
    for _ in WRAPPED:
        sample = [line for line in log[: SAMPLE << 10].splitlines() if line.strip()][:SAMPLE]
        front = next((one for one in WRAPPED if sum(map(bool, map(one.match, sample))) > 0.9 * len(sample)), None)
        if not front:
            break
        log = front.sub("", log)
    return log


def _unpacked(line: str) -> str:
    """The text of a line of Docker's json-file; any other line as it is."""
    try:
        return str(json.loads(line)["log"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return line


def recognised(log: str, known: engines.All) -> str:
    """The name of the engine that wrote it; `command` where it shows none."""
    told = lines(log)
    looked = told if len(told) <= 2 * LOOKED else [*told[:LOOKED], *told[-LOOKED:]]
    counted = {name: _count(looked, engine) for name, engine in known.items()}
    name = max(counted, key=lambda name: counted[name])
    return name if counted[name] else "command"


def _count(looked: Iterable[str], engine: engines.Engine) -> int:
    return sum(bool(engine.DIALECT.own.search(line)) for line in looked)
