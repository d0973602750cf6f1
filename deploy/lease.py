"""The lock on a host: a lease held by a process there for as long as we live and are heard."""

from __future__ import annotations

import getpass
import json
import os
import secrets
import socket
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from deploy import host
from deploy.errors import DeployError, Locked
from deploy.inventory import Host
from deploy.transport import Process, Transport

LONGEST = 24 * 3600.0
FREE = 2.0  # seconds
ANSWER = 30.0  # seconds for a Python to start on a busy host


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
        """Give the host back, and wait until it is: the user's next command may come at once."""
        self._released.set()
        self._process.close_stdin()
        with suppress(TimeoutError, DeployError):  # a host that is lost frees itself
            while self._process.read(timeout=FREE):
                pass
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
    words = (host.source("lease"), where.lock, str(where.lease), token, json.dumps(owner))
    process = transport.spawn((*host.python(where.transport), *words), deadline=LONGEST)
    try:
        answer = _answer(where, process)
        if answer["held"]:
            return Lease(where, process, token)
    except BaseException:
        process.close()
        raise
    process.close()
    if "error" in answer:
        raise Locked(
            f"{where.name}: the lock {where.lock} cannot be used: {answer['error']}",
            remedy="look at it on the host; another place for it is the host's `lock` in the inventory",
        )
    raise Locked(f"{where.name} is locked by {_who(answer['owner'])}", remedy="wait, or ask them")


def _answer(where: Host, process: Process) -> dict[str, Any]:
    """What the holder says first."""
    said = ""
    try:
        said = _line(process)
        answer = json.loads(said)
    except (TimeoutError, ValueError):
        answer = None
    if isinstance(answer, dict):
        return answer
    raise Locked(
        f"{where.name}: the lock could not be taken",
        evidence=(said or process.read_stderr().decode(errors="replace") or "no answer").strip()[-1500:],
        remedy=f"look at {where.lock} on the host; it needs python3 there, and a shell that prints nothing of its own",
    )


def _who(owner: dict[str, object]) -> str:
    if not owner:
        return "somebody (no name was left)"
    since = owner.get("since")
    when = time.strftime("%H:%M:%S", time.localtime(since)) if isinstance(since, float) else "a time not told"
    return f"{owner.get('user')}@{owner.get('host')} (pid {owner.get('pid')}): {owner.get('reason')}, since {when}"


def _line(process: Process) -> str:
    data = b""
    while not data.endswith(b"\n"):
        more = process.read(timeout=ANSWER)
        if not more:
            break
        data += more
    return data.decode(errors="replace")
