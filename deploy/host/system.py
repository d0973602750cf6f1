"""What a machine is: its system, kernel, Python, processors and memory, as JSON.

Runs on the host: Python >= 3.8, standard library only.
"""

from __future__ import annotations

import json
import os
import platform
import pwd
from typing import Any


def release() -> str:
    """The distribution's own name for itself."""
    try:
        with open("/etc/os-release", encoding="utf-8", errors="replace") as file:
            named = [line.partition("=")[2] for line in file if line.startswith("PRETTY_NAME=")]
    except OSError:
        named = []
    return named[0].strip().strip("\"'") if named else platform.system()


def user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # one without a name
        return str(os.geteuid())


def answer() -> dict[str, Any]:
    return {
        "system": release(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "user": user(),
        "hostname": platform.node(),
        "cpus": os.cpu_count(),
        "libc": " ".join(platform.libc_ver()).strip(),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


if __name__ == "__main__":
    print(json.dumps(answer()))
