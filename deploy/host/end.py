"""Signal processes that are still the ones we mean: end.py SIGNAL [[pid, start ticks], ...].

A pid may belong to another process by now; its start ticks tell. Prints the pids that were signalled;
exit status 1 where some may not be, named on stderr.
Runs on the host: Python >= 3.8, standard library only.
"""

from __future__ import annotations

import json
import os
import signal
import sys


def ticks(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return int(stat.read().rpartition(b") ")[2].split()[19])
    except (OSError, IndexError):
        return None


def main(name: str, targets: str) -> None:
    number, sent, refused = getattr(signal, f"SIG{name}"), [], []
    for pid, start in json.loads(targets):
        if ticks(pid) != start:
            continue
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
        except PermissionError:  # the others get theirs all the same
            refused.append(pid)
            continue
        sent.append(pid)
    print(json.dumps(sent))
    if refused:
        sys.exit(f"another user's, and not ours to signal: pid {', '.join(map(str, refused))}")


main(*sys.argv[1:])
