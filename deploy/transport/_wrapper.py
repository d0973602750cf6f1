"""How a program is started so that it always ends: the words every transport runs.

`timeout` makes a process group, sends it TERM at the deadline and KILL five seconds later, whatever became of us by
then. The shell in it waits for the program; after a TERM it kills what of the group outlived the program, itself and
`timeout` included. A mark on both streams tells the program's output from what start-up files of a login shell print.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence

KILL_AFTER = 5.0  # seconds between TERM and KILL
LONGEST = 128 * 1024 - 1024  # bytes; Linux takes no longer word (MAX_ARG_STRLEN), and sshd hands over a single one
KILLED = 137  # 128 + SIGKILL, as a shell says it

# $PPID is `timeout`, the group's leader. The mark has the number so that a shell that traces itself cannot forge it.
# The shell says "Terminated" for its child; with nobody left to read that, SIGPIPE would end it before its trap.
SCRIPT = """trap 'kill -s KILL -- "-$PPID"' TERM; trap : PIPE
echo "$1 $PPID"; echo "$1 $PPID" >&2; shift; "$@"; exit"""


def wrap(
    argv: Sequence[str], deadline: float, timeout: Sequence[str] = ("timeout", "-k")
) -> tuple[list[str], re.Pattern[bytes]]:
    """The words that run `argv` for at most `deadline` seconds, and the mark (with the group) before its output.

    `timeout` are the words that start that program, up to its grace in seconds.
    """
    if not argv or any("\0" in word for word in argv):
        raise ValueError(f"not words that a program can be started with: {list(argv)!r}")
    mark = secrets.token_hex(8)
    seconds = f"{max(deadline, 0.001):.3f}"  # 0 would mean for ever
    words = [*timeout, f"{KILL_AFTER:g}", seconds, "sh", "-c", SCRIPT, "sh", mark, *argv]
    return words, re.compile(rb"%s (\d+)\n" % mark.encode())
