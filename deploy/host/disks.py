"""The filesystem that holds each of some paths, which need not exist yet, as JSON."""

# Sent to hosts as a program: standard library only, Python 3.8 or newer.

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from deploy.host.filesystem import look, parse_mounts


def answer(*paths: str) -> list[dict[str, Any]]:
    mounts = parse_mounts(Path("/proc/self/mountinfo").read_text(errors="surrogateescape"))
    return [look(path, mounts) for path in paths]


if __name__ == "__main__":
    print(json.dumps(answer(*sys.argv[1:])))
