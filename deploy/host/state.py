"""Say what deployments a machine has, what runs of them live, and what the lock says: state.py WORK LOCK.

Prints JSON. Runs on the host: Python >= 3.8, standard library only.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from deploy.host.deployed import marks, seen


def answer(work: str, lock_file: str) -> dict[str, Any]:
    return seen(work, lock_file, marks())


if __name__ == "__main__":
    try:
        print(json.dumps(answer(*sys.argv[1:])))
    except OSError as error:  # another user's folder, say: what cannot be seen is not told as "nothing"
        sys.exit(f"cannot read {error.filename}: {error.strerror}")
