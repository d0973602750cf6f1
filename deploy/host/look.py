"""Answer many questions side by side: {"seconds": N, "programs": {name: text}, "questions": {name: question}} on stdin.

A question is {"argv": [...], "otherwise": [...]}, a command and what is run where it does not know its words; or
{"program": name, "args": [...]}, whose text has a function `answer`.
Prints {"began", "ended": by this host's clock, "answers": {name: [status, stdout, stderr, document]}}. The status is
null for what could not be started, or had not ended after N seconds: whoever hangs on a dead disk or a wedged driver is
left behind in a process of its own, which nobody waits for, and the others are told.
"""

# Sent to hosts as a program: standard library only, Python 3.8 or newer.

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
import traceback
from errno import ENOENT
from typing import Any

MOST = 4 << 20  # characters of a stream
NOT_THERE = os.strerror(ENOENT)
ENDING = 0.5  # seconds for a process to end that has nothing more to do
NOT_KNOWN = 2  # the exit status of a tool that does not take the words it is given


def command(argv: list[str], seconds: float) -> list[Any]:
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=seconds)
    except subprocess.TimeoutExpired:
        return hung(seconds)
    except OSError as error:
        # Linux says "permission denied" also where it may merely not look into a folder of PATH
        return [None, "", str(error if shutil.which(argv[0]) else FileNotFoundError(ENOENT, NOT_THERE, argv[0])), None]
    out, err = (stream.decode("utf-8", "replace")[-MOST:] for stream in (done.stdout, done.stderr))
    return [done.returncode, out, err, None]


def hung(seconds: float) -> list[Any]:
    return [None, "", f"no answer within {seconds:g} s", None]


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


def told(asked: dict[str, Any]) -> dict[str, Any]:
    """What came back of each question in time."""
    began, seconds, answers = time.time(), float(asked["seconds"]), {}

    def one(name: str, question: dict[str, Any]) -> None:
        if "argv" in question:
            answered = command(question["argv"], seconds)
            old = question.get("otherwise") if answered[0] == NOT_KNOWN else None
            answers[name] = command(old, seconds) if old else answered
        else:
            answers[name] = program(asked["programs"][question["program"]], question["args"])

    threads = [threading.Thread(target=one, args=item, daemon=True) for item in asked["questions"].items()]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + seconds + 1
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    found = {name: answers.get(name, hung(seconds)) for name in asked["questions"]}
    return {"began": began, "ended": time.time(), "answers": found}


def child(asked: dict[str, Any], line: int) -> None:
    """Looks, and writes a line. A thread that waits for a dead disk keeps its process, and all that this has open: so
    nothing may be open in it for whose end somebody waits.
    """
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    try:
        words = [json.dumps(told(asked)), ""]
    except BaseException:  # noqa: BLE001 - told by who waits
        words = ["", traceback.format_exc()]
    with os.fdopen(line, "w", encoding="utf-8") as out:
        out.write(json.dumps(words) + "\n")
    os._exit(0)  # without waiting for a thread that hangs


def ended(pid: int) -> None:
    """Wait for a process that is about to end, as nobody else may do it in a container; not for one that hangs."""
    until = time.monotonic() + ENDING
    while not os.waitpid(pid, os.WNOHANG)[0] and time.monotonic() < until:
        time.sleep(0.002)


def main() -> None:
    asked, (ours, its) = json.load(sys.stdin), os.pipe()
    pid = os.fork()
    if not pid:
        child(asked, its)
    os.close(its)
    with os.fdopen(ours, encoding="utf-8") as line:
        out, err = json.loads(line.readline() or '["", "it was ended"]')
    ended(pid)
    if err:
        sys.exit(err)
    print(out, flush=True)


main()
