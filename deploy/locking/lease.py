"""The lock on a host: a lease held by a process there for as long as we live and are heard."""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from deploy import host
from deploy.errors import DeployError, Locked, NoPython
from deploy.inventory import Host
from deploy.locking import hold
from deploy.text.legible import one_line
from deploy.transport import Process, Transport

LONGEST = 24 * 3600.0
FREE = 2.0  # seconds
ANSWER = 30.0  # seconds for a Python to start on a busy host
SHOWN = 500  # characters of a command in the lock's file: who waits need not read all of it
TYPED = 8000  # characters of it in the audit


class Lease:
    """A held lock. `token` fences: whoever takes the lock later writes another one.

    `before` is the hold that stood on the host, our own or one that was passed; `note` is what the user should know of
    its audit.
    """

    def __init__(self, where: Host, process: Process, token: str, answer: dict[str, Any]) -> None:
        self.path = where.lock
        self.token = token
        self.before = hold.parse(answer.get("hold"))
        self.note = f"{where.name}: {answer['note']}" if answer.get("note") else ""
        self._name = where.name
        self._seconds = where.lease
        self._process = process
        self._writing = threading.Lock()
        self._released = threading.Event()
        self._heart = threading.Thread(target=self._beat, name=f"lease {where.name}", daemon=True)
        self._heart.start()

    def _beat(self) -> None:
        while not self._released.wait(self._seconds / 4):
            try:
                self._write(b".")
            except OSError:  # the holder is gone; the next fenced script says so
                return

    def _write(self, data: bytes) -> None:
        with self._writing:
            self._process.write(data)

    # ---- what the holder does for us -----------------------------------------------------------------------------

    def hold(self, reason: str, seconds: float) -> None:
        """Keep the host for us beyond this lease, for so many seconds from now. DeployError where it cannot be."""
        self._order({"reason": reason, "seconds": seconds})

    def free(self) -> None:
        """Take away whatever hold stands."""
        self._order(None)

    def ended(self, exit_code: int, words: str) -> None:
        """Tell the host how it ended, for its audit."""
        with suppress(OSError, DeployError):
            self._write(_line({"outcome": {"exit_code": exit_code, "words": words}}))

    def _order(self, what: dict[str, Any] | None) -> None:
        try:
            self._write(_line({"hold": what}))
            answer = json.loads(_answer_line(self._process))
        except (OSError, ValueError) as error:
            raise Locked(
                f"{self._name}: our lease on the host lapsed before its hold was changed",
                remedy="run the command again",
            ) from error
        if not answer["done"]:
            raise DeployError(f"{self._name}: {self.path} cannot be written", evidence=answer["error"])
        self.note = f"{self._name}: {answer['note']}" if answer["note"] else ""

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


def take(where: Host, transport: Transport, reason: str, *, typed: str = "", past: str = "") -> Lease:
    """Take the host's lock, or Locked with who holds it, why and since when, or until when.

    `typed` is the command line for the host's audit; `past` is user@host of another's hold that shall not stop us.
    """
    token = secrets.token_hex(16)
    user, machine = hold.me()
    owner = {
        "user": user,
        "host": machine,
        "pid": os.getpid(),
        "since": time.time(),
        "reason": reason[:SHOWN],
    }
    wish = {"work": where.work, "what": (typed or reason)[:TYPED], "past": past}
    words = (where.lock, str(where.lease), token, json.dumps(owner), json.dumps(wish))
    process = transport.spawn((*host.python(where.transport), host.source("lease"), *words), deadline=LONGEST)
    try:
        answer = _answer(where, process)
        if answer["held"]:
            return Lease(where, process, token, answer)
    except BaseException:
        process.close()
        raise
    process.close()
    raise _refused(where, answer)


def _refused(where: Host, answer: dict[str, Any]) -> Locked:
    if "error" in answer:
        return Locked(
            f"{where.name}: the lock {where.lock} cannot be used: {answer['error']}",
            remedy="look at it on the host; another place for it is the host's `lock` in the inventory",
        )
    held = hold.parse(answer.get("hold"))
    if "owner" in answer:
        evidence = f"it is also held {held}" if held else ""
        return Locked(
            f"{where.name} is locked by {_who(answer['owner'])}", evidence=evidence, remedy="wait, or ask them"
        )
    return Locked(
        f"{where.name} is held {held}", remedy=f"wait, or ask them; deploy release {where.name} ends it, and says whose"
    )


def _answer(where: Host, process: Process) -> dict[str, Any]:
    """What the holder says first."""
    said = ""
    try:
        said = _answer_line(process)
        answer = json.loads(said)
    except (TimeoutError, ValueError):
        answer = None
    if isinstance(answer, dict):
        return answer
    words = said or process.read_stderr().decode(errors="replace") or "no answer"
    if missing := NoPython.seen(where.name, process.poll(), words):
        raise missing
    raise Locked(
        f"{where.name}: the lock could not be taken",
        evidence=words.strip()[-1500:],
        remedy=f"look at {where.lock} on the host; it needs python3 there, and a shell that prints nothing of its own",
    )


def who(line: str) -> str:
    """Who holds a lock, and for what, from the line of its file that says so."""
    try:
        owner = json.loads(line)
    except (ValueError, RecursionError):
        owner = None
    return _who(owner if isinstance(owner, dict) else {})


def _who(owner: dict[str, object]) -> str:
    if not owner:
        return "somebody (no name was left)"
    since = owner.get("since")
    when = time.strftime("%H:%M:%S", time.localtime(since)) if isinstance(since, float) else "a time not told"
    user, machine, pid, reason = (one_line(str(owner.get(key)), SHOWN) for key in ("user", "host", "pid", "reason"))
    return f"{user}@{machine} (pid {pid}): {reason}, since {when}"


def _line(order: dict[str, Any]) -> bytes:
    return json.dumps(order).encode() + b"\n"


def _answer_line(process: Process) -> str:
    data = b""
    while not data.endswith(b"\n"):
        more = process.read(timeout=ANSWER)
        if not more:
            break
        data += more
    return data.decode(errors="replace")
