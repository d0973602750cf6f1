"""How all that is deployed on this machine is doing: status.py WORK LOCK ENGINES.

ENGINES is JSON: {name: {"ready": path, "metrics": path or null, "words": [...]}}; of a server's metrics and of the end
of its log, the lines that have one of the words are told. Prints {"now": seconds since the epoch, "state": what
state.py prints, "doing": {run's folder: when it changed, its pids, and of a living one what `ask` gives}}.
Servers are asked side by side, and one that has no answer after a while is told as such.
Runs on the host: Python >= 3.8, standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from functools import partial
from typing import Any, Callable  # noqa: UP035 - Python 3.8

from deploy.host.deployed import Answer, Served, marks, seen
from deploy.host.family import Member, everyone, offspring
from deploy.host.sockets import open_sockets, parse_table
from deploy.host.swap_left import MARKER

PATIENCE = 5.0  # seconds for a server's answer
SHORT = 2.0  # and for its metrics
LONGEST = 8.0  # seconds for everything
METRICS = 4 << 20  # bytes of them that are read; SGLang's and vLLM's have some hundred thousand
LOG = 256 << 10  # bytes of the log's end
LINES = 200  # that are told of each, the last ones
API_KEY = "api-key"  # the flag of the secret that a request must carry
# Whose time tells when that was, the first that is there: of a run that had no start of its own, of its draft's coming.
FILES = {"exit": ["exit"], "stopped": ["stopped"], "ready_at": ["phases.json"], "torn_at": [MARKER]}
EXCHANGED = {**FILES, "ready_at": ["weights.json", "phases.json"]}


def get(port: int, path: str, key: str, most: int, patience: float) -> Answer:
    """One request to a server of this machine: {"status", "body", "error": refused, timeout or words}."""
    from http.client import HTTPConnection, HTTPException  # half of this program's start, and seldom needed

    connection = HTTPConnection("127.0.0.1", port, timeout=patience)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {key}"} if key else {})
        reply = connection.getresponse()
        return {"status": reply.status, "body": reply.read(most).decode("utf-8", "replace"), "error": ""}
    except ConnectionRefusedError:
        error = "refused"
    except TimeoutError:
        error = "timeout"
    except (OSError, HTTPException, ValueError) as failure:
        error = "timeout" if "timed out" in str(failure) else repr(failure)
    finally:
        connection.close()
    return {"status": None, "body": "", "error": error}


def telling(text: str, words: list[str]) -> str:
    """The last lines that have one of the words."""
    return "\n".join([line for line in text.splitlines() if any(word in line for word in words)][-LINES:])


def tail(path: str) -> str:
    """The end of a file; "" where it cannot be read."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LOG))
            return file.read(LOG).decode("utf-8", "replace")
    except OSError:
        return ""


def key_of(folder: str, secrets: Any) -> str:
    """The API key with which the run was launched, or nothing."""
    names = [name for name, flag in secrets.items() if flag == API_KEY] if isinstance(secrets, dict) else []
    try:
        with open(os.path.join(folder, "secrets.json"), encoding="utf-8") as file:
            values = json.load(file)
        return next((str(values[name]) for name in names if name in values), "")
    except (OSError, ValueError, TypeError):
        return ""


def owners(port: int, pids: list[int]) -> bool | None:
    """Whether one of these processes listens on the port; None where nobody does, or its owner cannot be seen."""
    inodes = set()
    for name in ("tcp", "tcp6"):
        try:
            with open(f"/proc/self/net/{name}", encoding="ascii") as file:
                inodes |= {entry["inode"] for entry in parse_table(file.read()) if entry["port"] == port}
        except OSError:
            continue
    if not inodes:
        return None
    ours = [open_sockets(str(pid)) for pid in pids]
    if any(inodes & held for held in ours):
        return True
    return False if any(ours) else None


def processes(run: Answer, everybody: dict[int, Member], served: Served) -> list[int]:
    """The pids of a run: what its launcher started, and what else says that it is of it."""
    launched = offspring(int(run["pid"]), everybody) if run["alive"] else set()
    return sorted({*launched, *map(int, served.get(run["server"], ()))})


def part(document: Any, name: str) -> Answer:
    """The object under that name, or an empty one where there is none."""
    found = document.get(name) if isinstance(document, dict) else None
    return found if isinstance(found, dict) else {}


def times(run: Answer) -> Answer:
    """When it ended, was told to end, became ready, or an exchange of its draft began which is not over: the times of
    what was written then.
    """
    found: Answer = {}
    for name, files in (FILES if run["server"] == run["folder"] else EXCHANGED).items():
        for file in files:
            with contextlib.suppress(OSError):
                folder = run["server" if file == MARKER else "folder"]
                found.setdefault(name, os.stat(os.path.join(folder, file)).st_mtime)
    return found


def ask(run: Answer, pids: list[int], engines: Answer) -> Answer:
    """A living run: whether it answers, who has its port, and what it counts."""
    profile = part(part(run["manifest"], "node"), "profile")
    engine = engines.get(str(part(profile, "engine").get("name")))
    port = profile.get("port")
    if not engine or not isinstance(port, int):
        return {"ready": None}
    key = key_of(run["folder"], profile.get("secrets"))
    ready = get(port, engine["ready"], key, 1 << 16, PATIENCE)
    asked = get(port, engine["metrics"], key, METRICS, SHORT) if engine["metrics"] and ready["status"] else ready
    told = asked["body"] if asked["status"] == 200 else ""
    return {
        "ready": {name: ready[name] for name in ("status", "error")},
        "ours": owners(port, pids),
        "metrics": telling(told, engine["words"]),
        "log": telling(tail(os.path.join(run["folder"], "server.log")), engine["words"]),
    }


def side_by_side(questions: dict[str, Callable[[], Answer]]) -> dict[str, Answer]:
    """The answers that came in time; a thread that has none is left alone, and ends with the program."""
    answers: dict[str, Answer] = {}

    def one(name: str) -> None:
        answers[name] = questions[name]()

    threads = [threading.Thread(target=one, args=(name,), daemon=True) for name in questions]
    for thread in threads:
        thread.start()
    until = time.monotonic() + LONGEST
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return dict(answers)


def answer(work: str, lock_file: str, engines: str) -> Answer:
    """The document."""
    known, served = json.loads(engines), marks()
    try:
        state = seen(work, lock_file, served)
    except OSError as error:  # another user's folder, say: what cannot be seen is not told as "nothing"
        sys.exit(f"cannot read {error.filename}: {error.strerror}")
    runs = [one["current"] for one in state["deployments"].values() if one["current"]]
    living = {run["folder"]: run for run in runs if run["alive"] or run["left"]}
    everybody = everyone() if living else {}
    pids = {folder: processes(run, everybody, served) for folder, run in living.items()}
    asked = side_by_side({folder: partial(ask, run, pids[folder], known) for folder, run in living.items()})
    late = {"ready": {"status": None, "error": "timeout"}}
    doing = {}
    for run in runs:
        folder = run["folder"]
        heard = asked.get(folder, late) if folder in living else {}
        doing[folder] = {**times(run), "pids": pids.get(folder, []), **heard}
    return {"now": time.time(), "state": state, "doing": doing}


if __name__ == "__main__":
    print(json.dumps(answer(*sys.argv[1:])), flush=True)
    os._exit(0)  # not when a thread that hangs has its answer
