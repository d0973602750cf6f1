"""What Python and what version of a distribution an engine would run with, as JSON.

`PYTHON DISTRIBUTION PYTHONPATH`, the last "" where the server is given none.
"""

# Sent to hosts as a program: standard library only, Python 3.8 or newer.

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

# Runs in the engine's own Python, which may be any. It imports nothing of the engine: that would take seconds (torch).
# No -I, since a server started without it sees user packages too; but the current folder must not count.
PROBE = """
import sys
sys.path[:] = [entry for entry in sys.path if entry]
import importlib.util, json, os, platform, re
told = {"version": platform.python_version(), "machine": platform.machine(), "executable": sys.executable,
        "libc": " ".join(platform.libc_ver()), "installed": None, "cuda": None, "error": ""}
try:
    from importlib import metadata
    told["installed"] = metadata.version(sys.argv[1])
    if not told["installed"]:
        told["error"] = "the metadata of %s names no version" % sys.argv[1]
except ImportError as error:  # PackageNotFoundError is one
    told["error"] = "%s is not installed there (%s)" % (sys.argv[1], error)
try:
    folder = os.path.dirname(importlib.util.find_spec("torch").origin)
    with open(os.path.join(folder, "version.py")) as file:
        built = dict(re.findall("^(cuda|hip)[^=\\\\n]*= *(.*)$", file.read(), re.MULTILINE))
    if built.get("hip", "None") == "None" and "cuda" in built:
        told["cuda"] = "" if built["cuda"] == "None" else built["cuda"].strip("'\\"")
except (ImportError, AttributeError, TypeError, ValueError, OSError):
    pass  # no torch there, or none that tells
print("\\n" + json.dumps(told))
"""


def ask(python: str, distribution: str, pythonpath: str = "") -> dict[str, Any]:
    wanted = Path(python).expanduser()
    path = shutil.which(str(wanted))
    if path is None:
        there = os.path.exists(wanted)
        return {"error": f"{python} {'cannot be executed' if there else 'does not exist, or may not be seen'}"}
    try:
        done = subprocess.run(
            [path, "-c", PROBE, distribution],
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=20,
            env={**os.environ, "PYTHONPATH": pythonpath} if pythonpath else None,
        )
    except (OSError, subprocess.TimeoutExpired) as error:  # no such interpreter behind its #!, wrong machine, hangs
        return {"error": f"{path}: {error}"}
    answer = done.stdout.decode("utf-8", "replace").strip().rpartition("\n")[2]
    if not answer.startswith("{"):
        said = (done.stderr or done.stdout).decode("utf-8", "replace").strip()
        return {"error": f"{path} ended with status {done.returncode}: {said[-1000:]}"}
    return dict(json.loads(answer))


answer = ask

if __name__ == "__main__":
    print(json.dumps(answer(*sys.argv[1:])))
