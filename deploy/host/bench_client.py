"""Runs an engine's own bench client on this host, and tells what it measured, as JSON lines.

The first line of stdin is {"argv": [words], "env": {...}, "files": {name: text}, "output": name, "secret": {variable:
value}, "total": requests}; a word "{folder}/..." names a file of a folder of this run's own, which goes with it, and
"~/..." one of the user's. When stdin ends, all ends. Lines {"done": number} tell how far it is, by the bar that it
draws on stderr; the last line is {"output": the last JSON line of the file, or null, "status", "said": its last words,
"clock_jump"}.
"""

# Sent to hosts as a program: standard library only, Python 3.8 or newer.

from __future__ import annotations

import json
import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

WORDS = 4000  # characters of what it says that are kept
PLACE = "{folder}"
BEAT = 1.0  # seconds after which it is told again how far it is
BAR = re.compile(rb"(\d+)/(\d+) \[")  # as tqdm draws it


def tell_line(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


def told_last(path: Path) -> Any:
    """The last JSON line of a file; None where there is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8").strip().rpartition("\n")[2])
    except (OSError, ValueError):
        return None


def how_far(said: bytes, total: int) -> int:
    """Requests ended, as the last bar of so many tells."""
    found = [int(done) for done, of in BAR.findall(said) if int(of) == total]
    return found[-1] if found else 0


def follow(process: subprocess.Popen[bytes], total: int) -> bytes:
    """Until it has said all; its last words."""
    said, told = b"", 0.0
    out = process.stdout
    if out is None:
        return b""
    with selectors.DefaultSelector() as selector:
        selector.register(0, selectors.EVENT_READ)
        selector.register(out, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select(BEAT):
                data = os.read(key.fd, 1 << 16)
                if key.fd == 0 and not data:
                    sys.exit(1)  # nobody hears us any more
                if key.fd != 0 and not data:
                    return said
                said = (said + data)[-WORDS:] if key.fd != 0 else said
            if time.monotonic() - told > BEAT:
                told = time.monotonic()
                tell_line({"done": how_far(said, total)})


def placed(word: str, folder: str) -> str:
    """A word that names a file of the folder, or one of the user's, as its path."""
    return os.path.expanduser(word.replace("{folder}", folder, 1) if word.startswith("{folder}/") else word)


def run_client(asked: dict[str, Any], folder: Path) -> dict[str, Any]:
    for name, text in asked["files"].items():
        (folder / name).write_text(text, encoding="utf-8")
    argv = [placed(word, str(folder)) for word in asked["argv"]]
    environment = {**os.environ, **asked["env"], **asked["secret"]}
    wall, steady = time.time(), time.monotonic()
    process = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, env=environment, cwd=str(folder),
    )  # fmt: skip
    try:
        said = follow(process, asked["total"])
        status = process.wait()
    finally:
        process.kill()
        process.wait()
    return {
        "output": told_last(folder / asked["output"]),
        "status": status,
        "said": said.decode(errors="replace"),
        "clock_jump": time.time() - wall - (time.monotonic() - steady),
    }


def read_line() -> bytes:
    """The first line of stdin, and nothing behind it."""
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(0, 1 << 16)
        if not piece:
            sys.exit(1)
        line += piece
    return line


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the folder goes, and the client
    with tempfile.TemporaryDirectory(prefix="deploy-bench-") as made:
        measured = run_client(json.loads(read_line()), Path(made))
    tell_line(measured)  # whoever hears it ends us
