"""Answer many questions side by side: {"seconds": N, "programs": {name: text}, "questions": {name: question}} on stdin.

A question is {"argv": [...]}, a command, or {"program": name, "args": [...]}, whose text has a function `answer`.
Prints {"began", "ended": by this host's clock, "answers": {name: [status, stdout, stderr, document]}}. The status is
null for what could not be started, or had not ended after N seconds: whoever hangs on a dead disk or a wedged driver is
left behind, and the others are told.
"""

# Sent to hosts as a program: standard library only, Python 3.8 or newer.

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import traceback
from typing import Any

MOST = 4 << 20  # characters of a stream


def command(argv: list[str], seconds: float) -> list[Any]:
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=seconds)
    except subprocess.TimeoutExpired:
        return [None, "", f"no answer within {seconds:g} s", None]
    except OSError as error:
        return [None, "", str(error), None]
    out, err = (stream.decode("utf-8", "replace")[-MOST:] for stream in (done.stdout, done.stderr))
    return [done.returncode, out, err, None]


def program(source: str, args: list[str]) -> list[Any]:
    """In a namespace of its own, as if it were the only one."""
    names: dict[str, Any] = {"__name__": "asked"}
    try:
        exec(source, names)  # noqa: S102 - our own text, by whom may run anything here
        return [0, "", "", json.loads(json.dumps(names["answer"](*args)))]
    except SystemExit as error:
        return [1, "", str(error.code), None]
    except Exception:  # noqa: BLE001 - one that breaks is told, and the others go on
        return [1, "", traceback.format_exc()[-4000:], None]


def main() -> None:
    asked, began = json.load(sys.stdin), time.time()
    seconds, answers = float(asked["seconds"]), {}

    def one(name: str, question: dict[str, Any]) -> None:
        if "argv" in question:
            answers[name] = command(question["argv"], seconds)
        else:
            answers[name] = program(asked["programs"][question["program"]], question["args"])

    threads = [threading.Thread(target=one, args=item, daemon=True) for item in asked["questions"].items()]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + seconds + 1
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    hung = [None, "", f"it had not ended after {seconds:g} s", None]
    told = {name: answers.get(name, hung) for name in asked["questions"]}
    print(json.dumps({"began": began, "ended": time.time(), "answers": told}))
    sys.stdout.flush()
    os._exit(0)  # without waiting for a thread that hangs


main()
