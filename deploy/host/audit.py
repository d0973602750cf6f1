"""The last lines of a machine's audit: audit.py ROOT COUNT. Prints a JSON list, the newest last.

Runs on the host: Python >= 3.8, standard library only.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

LARGEST = 16 << 20  # bytes that are looked at


def lines(path: str) -> list[Any]:
    """Those that can be read: a full disk may have cut one short."""
    found = []
    with open(path, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - LARGEST))
        for line in file:
            try:
                told = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(told, dict):
                found.append(told)
    return found


def main(root: str, count: str) -> None:
    try:
        found = lines(os.path.join(root, "audit.jsonl"))
    except FileNotFoundError:  # nothing was changed here so far
        found = []
    except OSError as error:
        sys.exit(f"cannot read {error.filename}: {error.strerror}")
    print(json.dumps(found[-int(count) :]))


main(*sys.argv[1:])
