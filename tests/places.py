"""Where whole runs take place: this machine, or hosts in namespaces over a real sshd; looked at past the tool."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import fleet
from tests.fleet import TestHost
from tests.project import EXAMPLES, LOCAL, Project, ended

# What lives of a run and of the session that was launched, who listens, whether anybody may take the lock at once.
LOOK = """
import fcntl, json, os, socket, sys
from pathlib import Path
run, session, port, lock = sys.argv[1:]
pids = []
for folder in Path("/proc").glob("[0-9]*"):
    try:
        words = (folder / "environ").read_bytes().split(b"\\0")
        mark = any(w.startswith(b"DEPLOY_SERVER=") and w.endswith(b"/" + run.encode()) for w in words)
        state, _, _, its, *_ = (folder / "stat").read_text().rpartition(") ")[2].split()
    except OSError:
        continue
    if (mark or its == session) and state not in "ZX":
        pids.append(int(folder.name))
with socket.socket() as probe:
    listens = probe.connect_ex(("127.0.0.1", int(port))) == 0
locked = False
if os.path.exists(lock):
    with open(lock) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            locked = True
print(json.dumps({"pids": pids, "listens": listens, "locked": locked}))
"""
NOTHING = {"pids": [], "listens": False, "locked": False}

# For hosts in namespaces alone: all that a deployment left there is ours.
CLEAN = """
import os, shutil, sys
from pathlib import Path
for folder in Path("/proc").glob("[0-9]*"):
    try:
        if b"\\0DEPLOY_SERVER=" in b"\\0" + (folder / "environ").read_bytes():
            os.kill(int(folder.name), 9)
    except OSError:
        continue
for path in sys.argv[1:]:
    shutil.rmtree(path, ignore_errors=True)
    Path(path).unlink(missing_ok=True) if not os.path.isdir(path) else None
"""


@dataclass(frozen=True)
class Place:
    """A host as the inventory describes it, and a way into it that is not the tool's."""

    name: str
    host: Mapping[str, Any]
    inside: Callable[..., str]

    def python(self, source: str, *args: str) -> str:
        """Run a Python program there; its stdout."""
        return self.inside(sys.executable, "-I", "-c", source, *args)

    def left(self, row: Mapping[str, Any], lock: str = "/tmp/deploy.lock") -> dict[str, Any]:
        """Living processes of a row of `deploy status`, whether anybody listens, whether the lock is held."""
        found: dict[str, Any] = json.loads(self.python(LOOK, row["run"], row["pid"], str(row["port"]), lock))
        return found


def here() -> Place:
    """This machine, without ssh."""
    return Place("localhost", LOCAL["localhost"], fleet.run)


def over_ssh(host: TestHost, **more: Any) -> Place:
    """A host in namespaces; its work folder and its lock are those that every user has who says nothing."""
    defaults = {"work": "~/.deploy", "lock": "/tmp/deploy.lock"}
    entry = {"address": host.address, "user": host.user, "key": host.key, **defaults, **more}
    return Place(host.name, entry, host.inside)


@contextmanager
def project_on(folder: Path, *places: Place, swept: Sequence[str] = (), **more: Any) -> Iterator[Project]:
    """A project whose inventory has these hosts; at the end nothing of it, nor of `swept`, is left on them."""
    made = Project(folder, {place.name: place.host for place in places}, **more)
    try:
        yield made
    finally:
        ended(folder)
        for place in places:
            if place.host.get("transport") != "local":
                place.python(CLEAN, "/home/op/.deploy", "/tmp/deploy.lock", *swept)


def broken(name: str, out: Path, healthy: Path = EXAMPLES / "draft") -> Path:
    """A broken draft of a healthy one: the tiny pair's, or another's."""
    spec = importlib.util.spec_from_file_location("make_dead", EXAMPLES / "make_dead.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made: Path = module.make(name, out, healthy)
    return made
