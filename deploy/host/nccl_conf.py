"""The variables in NCCL's own files on this machine, as JSON: {"files": {path: [[variable, value], ...] or null}}.

As `src/misc/param.cc` reads them (2.32): the file that NCCL_CONF_FILE names, given as the first argument, or
~/.nccl.conf, then /etc/nccl.conf. A variable that is set already keeps its value. Null is a file that may not be read.
"""

# Sent to hosts as a program: standard library only, Python 3.8 or newer.

from __future__ import annotations

import json
import os
import sys
from typing import Any

from deploy.host.sysfs import word

SYSTEM = "/etc/nccl.conf"


def variables(path: str) -> list[list[str]] | None:
    text = word(path)
    if text is None:
        return None
    lines = [line for line in text.splitlines() if "=" in line and not line.startswith("#")]
    return [list(line.partition("=")[::2]) for line in lines]


def answer(named: str = "") -> dict[str, Any]:
    own = named or os.path.join(os.path.expanduser("~"), ".nccl.conf")
    return {"files": {path: variables(path) for path in (own, SYSTEM) if os.path.lexists(path)}}


if __name__ == "__main__":
    print(json.dumps(answer(*sys.argv[1:])))
