"""How long earlier starts took: timings.py RUNS RUN NAME MOST, and on stdin what makes a start alike, as JSON.

RUNS is the folder of a deployment's runs, RUN the one that was launched, NAME the file that has a start's times:
{"of": what makes it alike, "seconds": {stage: seconds}}. Prints {"good": [seconds, ...], "kept": whether RUN has that
file}: of the latest starts that are alike, and of whose servers a run passed its gates, MOST at the most, the latest
first. Of runs that share a server, NAME is a link to that of the one that launched it: its start counts once.
Runs on the host: Python >= 3.8, standard library only.
"""

from __future__ import annotations

import json
import os
import sys

LOOKED = 200  # runs that are looked at, the latest ones: their folders are never removed
SIZE = 1 << 16  # bytes of a document; it has some hundred


def document(path: str) -> dict[str, object]:
    """The JSON object in a file; {} where none can be read."""
    try:
        with open(path, encoding="utf-8") as file:
            told = json.loads(file.read(SIZE))
    except (OSError, ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def main(runs: str, own: str, name: str, most: str) -> None:
    try:
        names = sorted(os.listdir(runs), reverse=True)[:LOOKED]  # a run's name begins with its time
    except OSError:
        names = []
    alike = json.load(sys.stdin)
    good: dict[str, object] = {}
    for run in names:
        verdict, path = document(os.path.join(runs, run, "verdict.json")), os.path.join(runs, run, name)
        told = document(path)
        if verdict.get("holds") is True and told.get("of") == alike and len(good) < int(most):
            good.setdefault(os.path.realpath(path), told.get("seconds"))
    print(json.dumps({"good": list(good.values()), "kept": os.path.exists(os.path.join(runs, own, name))}))


main(*sys.argv[1:])
