"""The lock on a host: a lease held by a process there for as long as we live and are heard."""

from __future__ import annotations

import getpass
import json
import os
import secrets
import socket
import threading
import time
from types import TracebackType
from typing import Self

from deploy import host
from deploy.errors import Locked
from deploy.inventory import Host
from deploy.transport import Process, Transport

LONGEST = 24 * 3600.0


class Lease:
    """A held lock. `token` fences: whoever takes the lock later writes another one."""

    def __init__(self, where: Host, process: Process, token: str) -> None:
        self.path = where.lock
        self.token = token
        self._seconds = where.lease
        self._process = process
        self._released = threading.Event()
        self._heart = threading.Thread(target=self._beat, name=f"lease {where.name}", daemon=True)
        self._heart.start()

    def _beat(self) -> None:
        while not self._released.wait(self._seconds / 4):
            try:
                self._process.write(b".")
            except OSError:  # the holder is gone; the next fenced script says so
                return

    def release(self) -> None:
        """Give the host back, at once."""
        self._released.set()
        self._process.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.release()


def take(where: Host, transport: Transport, reason: str) -> Lease:
    """Take the host's lock, or Locked with who holds it, why and since when."""
    token = secrets.token_hex(16)
    owner = {
        "user": getpass.getuser(),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "since": time.time(),
        "reason": reason,
    }
    argv = ("python3", "-I", "-c", host.source("lease"), where.lock, str(where.lease), token, json.dumps(owner))
    process = transport.spawn(argv, deadline=LONGEST)
    answer = json.loads(_line(process) or "null")
    if answer and answer["held"]:
        return Lease(where, process, token)
    process.close()
    if answer is None:
        raise Locked(
            f"{where.name}: the lock could not be taken",
            evidence=process.read_stderr().decode(errors="replace"),
            remedy=f"look at {where.lock} on the host; it needs python3 there",
        )
    raise Locked(f"{where.name} is locked by {_who(answer['owner'])}", remedy="wait, or ask them")


def _who(owner: dict[str, object]) -> str:
    if not owner:
        return "somebody (no name was left)"
    since = time.strftime("%H:%M:%S", time.localtime(float(str(owner.get("since", 0)))))
    return f"{owner.get('user')}@{owner.get('host')} (pid {owner.get('pid')}): {owner.get('reason')}, since {since}"


def _line(process: Process) -> str:
    data = b""
    while not data.endswith(b"\n"):
        more = process.read(timeout=30.0)
        if not more:
            break
        data += more
    return data.decode()
