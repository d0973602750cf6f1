"""Run programs side by side: {name: argv} as JSON on stdin; several.py SECONDS that each may take.

Prints {name: [exit status, stdout, stderr]}; the status is null for one that was ended, or could not be started.
Runs on the host: Python >= 3.8, standard library only.
"""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def one(argv: list[str]) -> list[Any]:
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=float(sys.argv[1])
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return [None, "", str(error)]
    return [done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")]


def main() -> None:
    wanted = json.load(sys.stdin)
    with ThreadPoolExecutor(len(wanted) or 1) as pool:
        answers = pool.map(one, wanted.values())
        print(json.dumps({name: next(answers) for name in wanted}))


main()
