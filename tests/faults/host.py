"""A host of the fault table: all that lives, listens and lies on it, so that before and after can be compared."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.places import Place
from tests.project import ROOT

# Every process but those that look, every listening port, every file that a run may have written, and its digest
# where it is part of a release.
LOOK = r"""
import fcntl, hashlib, json, os, sys
from pathlib import Path
def ancestors(pid):
    while pid:
        yield pid
        pid = int((Path("/proc") / str(pid) / "stat").read_text().rpartition(") ")[2].split()[1])
mine, processes, files = set(ancestors(os.getpid())), {}, {}
for folder in Path("/proc").glob("[0-9]*"):
    try:
        words = (folder / "cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
        marks = [w[14:] for w in (folder / "environ").read_bytes().split(b"\0") if w.startswith(b"DEPLOY_SERVER=")]
        state = (folder / "stat").read_text().rpartition(") ")[2].split()[0]
    except OSError:
        continue
    if int(folder.name) not in mine - {1} and state not in "ZX":
        processes[folder.name] = [words[-200:], os.fsdecode(marks[0]) if marks else ""]
ports = set()
for table in ("tcp", "tcp6"):
    for line in Path("/proc/net", table).read_text().splitlines()[1:]:
        _, local, _, state, *_ = line.split()
        if state == "0A":
            ports.add(int(local.rpartition(":")[2], 16))
for top in sys.argv[3:]:
    for parent, folders, names in os.walk(top):
        folders[:] = [name for name in folders if os.path.join(parent, name) != sys.argv[2]]  # the checkout
        for name in [*names, *(f for f in folders if os.path.islink(os.path.join(parent, f)))]:
            path = os.path.join(parent, name)
            try:
                link, stat = os.path.islink(path), os.lstat(path)
                text = os.readlink(path) if link else ""
                if not link and "/releases/" in path:
                    text = hashlib.sha256(Path(path).read_bytes()).hexdigest()
            except OSError:
                continue
            files[path] = [stat.st_size, stat.st_mtime_ns, text]
held, token = False, ""
if os.path.exists(sys.argv[1]):
    with open(sys.argv[1]) as lock:
        token = lock.readline().strip()
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            held = True
print(json.dumps({"processes": processes, "ports": sorted(ports), "files": files, "held": held, "token": token}))
"""
# What is written under another name first (write.py, mktemp, rsync, releases.bring) is never left: hidden, or ends so.
STALE = re.compile(r"/\.|\.tmp$|\.hit$|/[^/]*\.[A-Za-z0-9]{6}$")
TOPS = ("/home/op", "/tmp", "/var/tmp", "/dev/shm", "/srv")
LOCK = "/tmp/deploy.lock"


@dataclass(frozen=True)
class Look:
    """What was seen at once: {pid: (words, folder of its run)}, ports, {path: (size, mtime, text)}, the lock."""

    processes: Mapping[str, tuple[str, str]]
    ports: tuple[int, ...]
    files: Mapping[str, tuple[int, int, str]]
    held: bool
    token: str

    @property
    def stale(self) -> list[str]:
        """Files that only somebody who died in the middle leaves."""
        return [path for path in self.files if STALE.search(path)]

    @property
    def releases(self) -> set[frozenset[str]]:
        """Every release as the digests of its files."""
        found: dict[str, set[str]] = {}
        for path, (_, _, digest) in self.files.items():
            release, inside, _ = path.partition("/releases/")[2].partition("/")
            if inside and not release.startswith("."):
                found.setdefault(release, set()).add(digest)
        return {frozenset(digests) for digests in found.values()}

    @property
    def runs(self) -> set[str]:
        """The folders of runs that live."""
        return {run for _, run in self.processes.values() if run}

    @property
    def served(self) -> str:
        """The release that the one living run serves."""
        (run,) = self.runs
        return self.files[f"{run}/draft"][2]

    def others(self, before: Look, *, serves: bool) -> list[str]:
        """Processes that were not there before, and are not those of the one run that serves, nor cap its log."""
        run = max(self.runs, default="") if serves else ""
        own = {pid for pid, (_, its) in self.processes.items() if its and its == run}
        new = {pid: words for pid, (words, _) in self.processes.items() if pid not in own | before.processes.keys()}
        return [words for words in new.values() if not any(words.endswith(f" logcap.py {pid}") for pid in own)]

    def settled(self) -> Any:
        """What a client that lost its lease may not change: whose processes live, and all files but those that grow,
        and an engine's answers, which are kept for whoever asks.
        """
        passing = ("server.log", ".lock")
        files = {path: it for path, it in self.files.items() if not path.endswith(passing) and "/cache/" not in path}
        return {pid for pid, (_, run) in self.processes.items() if run}, files


def look(place: Place) -> Look:
    """Look at the whole host at once."""
    told = json.loads(place.python(LOOK, str(place.host.get("lock", LOCK)), str(ROOT), *TOPS))
    return Look(
        {pid: (words, run) for pid, (words, run) in told["processes"].items()},
        tuple(told["ports"]),
        {path: (size, mtime, text) for path, (size, mtime, text) in told["files"].items()},
        told["held"],
        told["token"],
    )
