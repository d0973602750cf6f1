"""Signal processes that are still the ones we mean, and wait for their end:
end.py SIGNAL TARGETS [AWAITED SECONDS [GROUPS]].

TARGETS and AWAITED are [[pid, start ticks], ...]. A pid may belong to another process by now; its start ticks tell.
With AWAITED it returns as soon as all of them have ended (a zombie has), at the latest after SECONDS. GROUPS are the
pids of targets whose whole process group gets the signal, so that no member escapes it by a fork.
Prints {"sent": [pids], "refused": [pids that are another user's], "left": [pids of AWAITED that live]}.
Runs on the host: Python >= 3.8, standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time

LOOK = 0.02  # seconds between two looks at a process that there is no handle for
TO_THE_GROUP = 4  # PIDFD_SIGNAL_PROCESS_GROUP, since Linux 6.9 (include/uapi/linux/pidfd.h)


def fields(pid: int) -> list[str]:
    """Of /proc/PID/stat, from the state on; none where it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rpartition(b") ")[2].decode().split()
    except OSError:
        return []


def meant(pid: int, start: int) -> bool:
    found = fields(pid)
    return len(found) > 19 and int(found[19]) == start


def lives(pid: int, start: int) -> bool:
    """Not a zombie. One whose first thread ended has the state of a zombie, and lives."""
    found = fields(pid)
    return len(found) > 19 and int(found[19]) == start and (found[0] not in "ZX" or int(found[17]) > 1)


def handle(pid: int) -> int | None:
    """A descriptor of the process; None where this Python (before 3.9) or kernel (before 5.3) has none."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except OSError:  # ENOSYS, or EPERM of a sandbox; a thread that leads no process (EINVAL) is none of ours
        return None


def send(pid: int, start: int, number: int, group: bool) -> bool:
    """Whether it got the signal. The handle is opened first: if the ticks are right after that, it is of the process
    that is meant, and no other one can take its place before the signal.
    """
    try:
        held = handle(pid)
    except ProcessLookupError:
        return False
    try:
        return meant(pid, start) and signalled(pid, held, number, group)
    except ProcessLookupError:
        return False
    finally:
        if held is not None:
            os.close(held)


def signalled(pid: int, held: int | None, number: int, group: bool) -> bool:
    if held is None:
        os.kill(pid, number)
        return True
    signal.pidfd_send_signal(held, number)
    if group:
        with contextlib.suppress(OSError):  # an older kernel: the members get theirs one by one
            signal.pidfd_send_signal(held, number, None, TO_THE_GROUP)
    return True


def left(awaited: list[list[int]], seconds: float) -> list[int]:
    """The pids of those that still live after so many seconds, or before that none."""
    deadline = time.monotonic() + seconds
    while alive := [pair for pair in awaited if lives(*pair)]:
        rest = deadline - time.monotonic()
        if rest <= 0:
            break
        ended(alive[0], min(rest, 1.0))
    return [pid for pid, _ in alive]


def ended(pair: list[int], seconds: float) -> None:
    """Wait for the end of one of them, or for a moment where there is no handle."""
    try:
        held = handle(pair[0])
    except ProcessLookupError:
        return
    if held is None:
        time.sleep(min(seconds, LOOK))
        return
    try:
        if meant(*pair):
            wait = select.poll()
            wait.register(held, select.POLLIN)
            wait.poll(seconds * 1000)
    finally:
        os.close(held)


def same_namespace() -> bool:
    """Whether /proc numbers processes as the system calls do: not in a pid namespace that was entered without it."""
    return os.readlink("/proc/self") == str(os.getpid())


def main(name: str, targets: str, awaited: str = "[]", seconds: str = "0", groups: str = "[]") -> None:
    if not same_namespace():
        sys.exit("/proc is another pid namespace's: whom a signal would reach cannot be told, and none is sent")
    number, sent, refused = getattr(signal, f"SIG{name}"), [], []
    for pid, start in json.loads(targets):
        try:
            if send(pid, start, number, pid in json.loads(groups)):
                sent.append(pid)
                if number == signal.SIGTERM:  # one that is stopped would hear of it only when it goes on
                    send(pid, start, signal.SIGCONT, False)
        except PermissionError:  # the others get theirs all the same
            refused.append(pid)
    waited = left(json.loads(awaited), float(seconds))
    print(json.dumps({"sent": sent, "refused": refused, "left": waited}))


if __name__ == "__main__":
    main(*sys.argv[1:])
