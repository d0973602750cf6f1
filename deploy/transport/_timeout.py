"""What `timeout -k GRACE SECONDS PROGRAM...` of the GNU tools does, for machines without them (macOS).

A program of its own, started with this interpreter: it makes a process group of which it is the leader, sends it TERM
at the deadline and KILL `GRACE` seconds later, and leaves with the program's status, or 124 after a deadline.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from types import FrameType

ENDED, MISSING, FORBIDDEN = 124, 127, 126


def main(grace: str, seconds: str, *argv: str) -> int:
    """The exit status."""
    if os.getpid() != os.getpgid(0):
        os.setpgid(0, 0)
    told = late = False

    def end(number: int, _frame: FrameType | None) -> None:
        nonlocal told, late
        if told:
            os.killpg(0, signal.SIGKILL)
        told, late = True, number == signal.SIGALRM
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the group's TERM is not for us
        signal.setitimer(signal.ITIMER_REAL, float(grace))
        os.killpg(0, signal.SIGTERM)

    try:
        child = subprocess.Popen(argv)
    except OSError as error:
        sys.stderr.write(f"{argv[0]}: {error.strerror}\n")
        return MISSING if isinstance(error, FileNotFoundError) else FORBIDDEN
    signal.signal(signal.SIGALRM, end)
    signal.signal(signal.SIGTERM, end)
    signal.setitimer(signal.ITIMER_REAL, float(seconds))
    status = child.wait()
    if late:
        return ENDED
    return 128 - status if status < 0 else status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
