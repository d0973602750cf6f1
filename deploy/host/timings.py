"""How long earlier starts took: timings.py RUNS RUN NAME MOST, and on stdin what makes a start alike, as JSON.

RUNS is the folder of a deployment's runs, RUN the one that is starting, NAME the file that has a start's times:
{"of": what makes it alike, "seconds": {stage: seconds}}. Prints {"good": [seconds, ...], "kept": whether RUN has that
file}: of the latest runs that are alike and passed their gates, MOST at the most, the latest first.
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
    good: list[object] = []
    for run in names:
        verdict = document(os.path.join(runs, run, "verdict.json"))
        told = document(os.path.join(runs, run, name))
        if verdict.get("holds") is True and told.get("of") == alike and len(good) < int(most):
            good.append(told.get("seconds"))
    print(json.dumps({"good": good, "kept": os.path.exists(os.path.join(runs, own, name))}))


main(*sys.argv[1:])
