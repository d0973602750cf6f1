"""Hold a machine's lock for as long as bytes arrive on stdin: lease.py FILE SECONDS TOKEN OWNER WISH.

Prints {"held": true}, or {"held": false} with the "owner", with the "hold" that stands, or with the file's "error".
The lock is a flock, so it ends with this process whatever happens to it; the lease ends it when the client is frozen
and sends nothing; closing stdin ends it at once.
Line 1 of the file is the fencing token, line 2 says who. Line 3 is a hold, which outlives all of this: who keeps the
machine for himself, why, and until when by the machine's own clock. It stops everybody but its owner.
WISH is {"work": the folder, "what": the command line, for the audit, "past": user@host of a hold that is passed}.
stdin: a point is a sign of life; a line of JSON is {"hold": {"reason", "seconds"} or null}, which is answered by a
line, or {"outcome": {...}}. What is begun, held, released and ended is a line in WORK/<machine-id>/audit.jsonl.
Runs on the host: Python >= 3.8, standard library only.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import pwd
import select
import stat
import sys
import time
from typing import Any

LONGEST = 7 * 24 * 3600  # seconds; a hold that has more left was written by a clock that was wrong
Facts = dict[str, Any]


def opened(path: str) -> int:
    """Open the lock for any user of the machine.

    Never O_CREAT on an existing file: the kernel refuses that in a sticky folder when another user owns the file
    (fs.protected_regular), which is why flock(1) does not do here.
    """
    for _ in range(3):
        try:
            return os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            pass
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        except FileExistsError:
            continue
        os.fchmod(fd, 0o666)
        return fd
    raise OSError(errno.EAGAIN, "the lock file comes and goes", path)


def locked(path: str) -> tuple[int, bool]:
    """The open file, and whether its lock is ours now."""
    fd = opened(path)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise OSError(errno.EINVAL, "not a regular file", path)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return fd, False
    return fd, True


def told(fd: int, line: int) -> Facts:
    """What a line of the file says; its writer may be writing just now, and anybody may write to it."""
    lines = os.pread(fd, 65536, 0).decode(errors="replace").split("\n")
    try:
        found = json.loads(lines[line])
    except (IndexError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def standing(hold: Facts) -> Facts:
    """The hold with the seconds that are left of it; nothing where there is none, or it has ended."""
    until = hold.get("until")
    left = until - time.time() if isinstance(until, (int, float)) and 0 < until < 1e12 else 0
    return {**hold, "left": left} if 0 < left <= LONGEST else {}


def name(who: Facts) -> str:
    return f"{who.get('user')}@{who.get('host')}"


def write(fd: int, token: str, who: str, hold: Facts) -> None:
    """In one write, and then cut: a kill in between leaves a fourth line, which nobody reads."""
    kept = {key: value for key, value in standing(hold).items() if key != "left"}
    lines = f"{token}\n{who}\n{json.dumps(kept) if kept else ''}".rstrip("\n")
    text = f"{lines}\n".encode() if lines else b""
    if text:
        os.pwrite(fd, text, 0)
    os.ftruncate(fd, len(text))


def tell(**what: object) -> None:
    print(json.dumps(what), flush=True)


def why(error: OSError) -> str:
    """In words; somebody may have put a link there to have us write elsewhere."""
    return "it is a symbolic link" if error.errno == errno.ELOOP else str(error.strerror)


def machine() -> str:
    try:
        with open("/etc/machine-id", encoding="utf-8") as file:
            return file.read().strip() or os.uname().nodename
    except (OSError, UnicodeDecodeError):
        return os.uname().nodename


def login() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


class Audit:
    """Who changed what on this machine, a line of JSON each. Its failures are told, and stop nobody."""

    def __init__(self, work: str, **always: str) -> None:
        self.folder = os.path.join(os.path.realpath(os.path.expanduser(work)), machine())
        self.always = always
        self.began = time.time()
        self.waiting = b""

    def add(self, event: str, *, make: bool = False, **facts: object) -> str:
        """Append a line; why that cannot be done. Where there is no folder nothing was changed yet: the line waits."""
        now = time.time()
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03d}Z"
        self.waiting += json.dumps({"when": when, "event": event, **self.always, **facts}).encode() + b"\n"
        try:
            if make:
                os.makedirs(self.folder, exist_ok=True)
            if os.path.isdir(self.folder):
                self._write(self._opened())
        except OSError as error:
            return f"{self.folder}/audit.jsonl cannot be written: {why(error)}"
        return ""

    def _opened(self) -> int:
        path = os.path.join(self.folder, "audit.jsonl")
        flags = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            return os.open(path, flags)
        except FileNotFoundError:
            fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
        shared = os.stat(self.folder).st_mode & 0o022  # who may write into the folder may append to it as well
        os.fchmod(fd, 0o600 | shared | shared << 1)
        return fd

    def _write(self, fd: int) -> None:
        """One append; after a line that a full disk cut short, on a line of its own."""
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(errno.EINVAL, "not a regular file")
            size = os.fstat(fd).st_size
            torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
            text = b"\n" * torn + self.waiting
            if os.write(fd, text) < len(text):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.waiting = b""
        finally:
            os.close(fd)


class Lease:
    """The lock in our hands, and what the client says meanwhile."""

    def __init__(self, fd: int, token: str, who: str, audit: Audit) -> None:
        self.fd, self.token, self.who, self.audit = fd, token, who, audit
        self.outcome: Facts = {"exit_code": None, "words": "the client died"}

    def serve(self, seconds: float) -> None:
        """Until nothing is heard any more."""
        rest = b""
        while select.select([0], [], [], seconds)[0]:
            data = os.read(0, 65536)
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self.obey(json.loads(line.lstrip(b".")))
            rest = rest.lstrip(b".")
        self.outcome = {"exit_code": None, "words": f"the client was silent for {seconds:g} s"}

    def obey(self, order: Facts) -> None:
        if "outcome" in order:
            self.outcome = order["outcome"]
        if "hold" in order:
            try:
                tell(done=True, note=self.hold(order["hold"]))
            except OSError as error:
                tell(done=False, error=why(error))

    def hold(self, wanted: Facts | None) -> str:
        """Write a hold, or take away what stands; a note on the audit."""
        now, before, mine = time.time(), told(self.fd, 2), json.loads(self.who)
        whose = {key: mine[key] for key in ("user", "host") if key in mine}
        if wanted:
            origin = {"from": self.audit.always["from"], "reason": wanted["reason"]}
            write(self.fd, self.token, self.who, {**whose, **origin, "since": now, "until": now + wanted["seconds"]})
        else:
            write(self.fd, self.token, self.who, {})
        if wanted:
            return self.audit.add("held", make=True, reason=wanted["reason"], seconds=round(wanted["seconds"]))
        return self.audit.add("released", make=True, whose=name(before), reason=before.get("reason"))

    def end(self) -> None:
        """The token dies with the lease, before the lock does; the hold stays. A slow work folder keeps nobody out."""
        write(self.fd, "", "", told(self.fd, 2))
        os.close(self.fd)
        took = round(time.time() - self.audit.began, 1)
        self.audit.add("ended", outcome={**self.outcome, "seconds": took})


def main(path: str, seconds: str, token: str, who: str, wish: str) -> None:
    mine, wanted = json.loads(who), json.loads(wish)
    try:
        fd, ours = locked(path)
        hold = standing(told(fd, 2))
        shown = {"hold": hold} if hold else {}
        if not ours:
            tell(held=False, owner=told(fd, 1), **shown)
            return
        if hold and name(hold) not in (name(mine), wanted["past"]):
            tell(held=False, hold=hold)
            return
        write(fd, token, who, hold)
    except OSError as error:
        tell(held=False, error=why(error))
        return
    origin = os.environ.get("SSH_CONNECTION", "").split(" ")[0] or "here"
    audit = Audit(wanted["work"], id=token[:8], who=name(mine), what=wanted["what"], **{"from": origin, "as": login()})
    note = audit.add("began")
    tell(held=True, **shown, **({"note": note} if note else {}))
    lease = Lease(fd, token, who, audit)
    lease.serve(float(seconds))
    lease.end()


main(*sys.argv[1:])
