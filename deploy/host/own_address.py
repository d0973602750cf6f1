"""What this machine's own name leads to, as JSON: Gloo binds to that, unless it is told an interface.

A name service that is away is asked for SECONDS; then `addresses` is null.
"""

# Sent to hosts as a program: standard library only, Python 3.8 or newer.

from __future__ import annotations

import json
import socket
import threading
from typing import Any

SECONDS = 3.0


def answer() -> dict[str, Any]:
    name = socket.gethostname()
    told: dict[str, Any] = {"name": name, "addresses": None}

    def ask() -> None:
        try:
            found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):  # it leads nowhere; a label may be longer than names are
            told["addresses"] = []
        else:
            told["addresses"] = sorted({str(one[4][0]) for one in found})

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(SECONDS)
    return dict(told)


if __name__ == "__main__":
    print(json.dumps(answer()))
