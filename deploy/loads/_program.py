"""A load generator's program on the host: its lines of JSON as they come, and its end when nobody waits any more."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from typing import Any

from deploy import host
from deploy.errors import NoPython, RemoteFailed, Unreachable
from deploy.remote import Remote
from deploy.transport import Process

SILENT = 60.0  # seconds; such a program says every second how far it is
LISTEN = 0.5  # seconds between looks at whether the run is being stopped


def run(
    name: str, asked: Mapping[str, Any], remote: Remote, *, deadline: float, told: Callable[[int], None]
) -> dict[str, Any]:
    """What `host/NAME.py` prints last, within `deadline` seconds and some; before it, lines {"done": number} tell how
    far it is. `asked` is the first line of its stdin, which stays open, since the program ends with it.

    Interrupted when the run is being stopped, RemoteFailed when the program ends without its last word.
    """
    with closing(remote.spawn(*remote.interpreter, host.source(name), deadline=deadline + SILENT)) as process:
        with suppress(BrokenPipeError):  # why it is gone is told by its status
            process.write(json.dumps(asked).encode() + b"\n")
        for line in _lines(process, remote):
            if "done" not in line:
                return line
            told(line["done"])
        status, words = process.poll() or 0, process.read_stderr().decode(errors="replace").strip()
    raise NoPython.seen(remote.host.name, status, words) or RemoteFailed(
        f"{remote.host.name}: the load generator ended with status {status}", status=status, evidence=words[-1500:]
    )


def _lines(process: Process, remote: Remote) -> Iterator[dict[str, Any]]:
    rest, silent = b"", 0.0
    while True:
        remote.pause(0)
        try:
            data = process.read(timeout=LISTEN)
        except TimeoutError:
            silent += LISTEN
            if silent > SILENT:
                raise Unreachable(f"{remote.host.name}: not a sign of life for {SILENT:.0f} s") from None
            continue
        if not data:
            return
        silent = 0.0
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield json.loads(line)
