"""What this machine's own name leads to, as JSON: Gloo binds to that, unless it is told an interface."""

# Sent to hosts as a program: standard library only, Python 3.8 or newer.

from __future__ import annotations

import json
import socket
from typing import Any


def answer() -> dict[str, Any]:
    name = socket.gethostname()
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as error:
        return {"name": name, "addresses": [], "error": str(error)}
    return {"name": name, "addresses": sorted({str(one[4][0]) for one in found}), "error": ""}


if __name__ == "__main__":
    print(json.dumps(answer()))
