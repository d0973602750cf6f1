"""Where programs of these names are, for a shell without a terminal, as JSON: {name: path or null}."""

# Sent to hosts as a program: standard library only, Python 3.8 or newer.

from __future__ import annotations

import json
import shutil
import sys


def answer(*names: str) -> dict[str, str | None]:
    return {name: shutil.which(name) for name in names}


if __name__ == "__main__":
    print(json.dumps(answer(*sys.argv[1:])))
