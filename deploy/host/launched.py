"""All processes of this host, and the launchers that a deployment's runs wrote down: launched.py RUNS."""

# Sent to hosts as a program: standard library only, Python 3.8 or newer.

from __future__ import annotations

import json
import os
import sys
from typing import Any

from deploy.host.processes import table


def launchers(runs: str) -> list[list[str]]:
    """[the run's folder, pid, start ticks, boot id] of each run whose launch.sh got so far as to write them."""
    found = []
    for name in sorted(os.listdir(runs)) if os.path.isdir(runs) else []:
        folder = os.path.join(runs, name)
        try:
            with open(os.path.join(folder, "pid"), encoding="utf-8") as file:
                words = file.read().split()
        except (OSError, UnicodeDecodeError):
            continue
        if len(words) == 3 and words[0].isdecimal() and words[1].isdecimal():
            found.append([folder, *words])
    return found


def answer(runs: str) -> dict[str, Any]:
    return {**table(), "launchers": launchers(runs)}


if __name__ == "__main__":
    print(json.dumps(answer(*sys.argv[1:])))
