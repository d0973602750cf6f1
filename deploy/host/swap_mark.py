"""What a hand-over leaves on its host: its mark, the fence that it looks at, links: a part of programs, no program.

Standard library, Python 3.8.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pwd
import socket
import time
from collections.abc import Sequence
from typing import Any

from deploy.host.swap_left import MARKER

ENDS = 2.0  # seconds that who had the lock may take from the end of its token to that of its lock (lease.py: end)


class Lapsed(Exception):
    """The lock is not ours any more: somebody else may act on this host."""


class Fence:
    """The lock's file; its first line is the token of who holds it.

    Its holder ends with the client, and the token with it. What must not stop half-way then `goes_on`: it takes the
    lock itself, where nobody else has, and has it for as long as this program lives.
    """

    def __init__(self, lock: str, token: str) -> None:
        self.lock, self.token = lock, token
        self.goes_on = False
        self._own = False

    def check(self) -> None:
        """Lapsed where the lock is not ours."""
        if self._own or (self.token and self._lines()[0] == self.token):
            return
        if not self.goes_on or not self._taken():
            raise Lapsed

    def _lines(self) -> list[str]:
        try:
            with open(self.lock, encoding="utf-8", errors="replace") as file:
                return [*file.read(65536).split("\n"), "", ""]
        except OSError:
            return ["", "", ""]

    def _taken(self) -> bool:
        """Whether it is ours from now on: whoever has had it in between has left a token."""
        try:
            fd = os.open(self.lock, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return False
        deadline = time.monotonic() + ENDS
        while not self._lines()[0] and time.monotonic() < deadline:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                time.sleep(0.02)
                continue
            self._own = not self._lines()[0]
            break
        if self._own:
            self._sign(fd)
        else:
            os.close(fd)
        return self._own

    def _sign(self, fd: int) -> None:
        """Who has it, for others to be told; a hold stays."""
        user = str(os.geteuid())
        with contextlib.suppress(KeyError):
            user = pwd.getpwuid(os.geteuid()).pw_name
        who = {"user": user, "host": socket.gethostname(), "pid": os.getpid(), "since": time.time()}
        said = json.dumps({**who, "reason": "an exchange of a draft, whose client is gone"})
        text = f"\n{said}\n{self._lines()[2]}".rstrip("\n").encode() + b"\n"
        with contextlib.suppress(OSError):
            os.pwrite(fd, text, 0)
            os.ftruncate(fd, len(text))


class Mark:
    """`swap.json` in the server's folder. Who finds one does not know what is loaded, and that the server is paused."""

    def __init__(self, folder: str) -> None:
        self.path = os.path.join(folder, MARKER)

    def there(self) -> dict[str, Any] | None:
        """What stands in it, {} where that is nothing; None where there is none."""
        try:
            with open(self.path, encoding="utf-8") as file:
                found = json.load(file)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def write(self, **what: object) -> None:
        """Whole, or not at all."""
        write(self.path, what)

    def remove(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)


def write(path: str, what: object) -> None:
    """JSON for its owner alone, whole or not at all."""
    half = f"{path}.{os.getpid()}"
    try:
        with open(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            json.dump(what, file)
        os.replace(half, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(half)
        raise


def link(links: Sequence[Sequence[str]]) -> None:
    """Have each path lead to its target, one after another by rename; on an error they lead where they did."""
    done: list[tuple[str, str | None]] = []
    try:
        for target, path in links:
            before = os.readlink(path) if os.path.lexists(path) else None
            _lead(target, path)
            done.append((path, before))
    except OSError:
        for path, before in reversed(done):
            if before is None:
                os.unlink(path)
            else:
                _lead(before, path)
        raise


def _lead(target: str, path: str) -> None:
    half = f"{path}.{os.getpid()}"
    os.symlink(target, half)
    try:
        os.replace(half, path)
    except OSError:
        os.unlink(half)
        raise
