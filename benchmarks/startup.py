"""How long `deploy --help` takes, against `python -c pass`, alternating in one run.

    python -m benchmarks.startup [ROUNDS]

Target: at most 5 times, which is a light command-line library's (argparse 2.1, click 4.0).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from statistics import median

CASES = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "import click": [sys.executable, "-c", "import click"],
    "deploy --help": [sys.executable, "-m", "deploy", "--help"],
    "deploy up --help": [sys.executable, "-m", "deploy", "up", "--help"],
    "deploy up <TAB>": [sys.executable, "-m", "deploy"],
}
TAB = {"_DEPLOY_COMPLETE": "bash_complete", "COMP_LINE": "deploy up profile=local ~env.", "COMP_CURRENT": "~env."}


def seconds(name: str) -> float:
    environ = {**os.environ, **(TAB if "TAB" in name else {})}
    began = time.perf_counter()
    subprocess.run(CASES[name], check=True, stdout=subprocess.DEVNULL, env=environ)
    return time.perf_counter() - began


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    taken: dict[str, list[float]] = {name: [] for name in CASES}
    for _ in range(rounds + 1):
        for name in CASES:
            taken[name].append(seconds(name))
    floor = taken["python -c pass"][1:]  # the first round wrote the .pyc files
    for name, found in taken.items():
        ratios = [one / least for one, least in zip(found[1:], floor, strict=True)]
        print(f"{name:<18} median {median(found[1:]) * 1e3:6.1f} ms   {median(ratios):.2f} x python -c pass")


if __name__ == "__main__":
    main()
