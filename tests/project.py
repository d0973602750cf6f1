"""A user's project in a folder, and the real command line in it: how the tests of whole runs speak to the tool."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples" / "tiny-eagle3"
TELLING = ROOT / "examples" / "telling-eagle3"
FAKE = ROOT / "tests" / "fake_server.py"
SWAPPABLE = ROOT / "tests" / "swappable_server.py"
LOCAL = {"localhost": {"transport": "local"}}


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Project:
    """`hosts` as in an inventory; the work folder, the lock, the cache and the home are all the project's own."""

    folder: Path
    hosts: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: LOCAL)
    lease: float = 30.0
    before: Sequence[str] = ()  # words before the command line, that start it in another surrounding

    def __post_init__(self) -> None:
        own = {"work": str(self.folder / "work"), "lock": str(self.folder / "lock"), "lease": self.lease}
        hosts = {name: {**own, **host} for name, host in self.hosts.items()}
        (self.folder / "home").mkdir(parents=True, exist_ok=True)
        (self.folder / "inventory.yaml").write_text(yaml.safe_dump({"hosts": hosts}))
        self.environ = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("DEPLOY_SET_", "XDG_"))},
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "HOME": str(self.folder / "home"),  # whoever tests may have something deployed on this machine
            "PYTHONPATH": str(ROOT),
        }

    def profile(self, name: str, **fields: Any) -> None:
        """Write a profile."""
        (self.folder / "profiles").mkdir(exist_ok=True)
        (self.folder / "profiles" / f"{name}.yaml").write_text(yaml.safe_dump(fields, sort_keys=False))

    def fake(self, name: str = "fake", hosts: Sequence[str] | str = "all", **fields: Any) -> int:
        """Write a profile of the fake SGLang on a free port, with a real draft; `fake={...}` is how it misbehaves."""
        wrong = fields.pop("fake", {})
        port = fields.pop("port", None) or free_port()
        self.profile(
            name,
            **{
                "engine": {"name": "sglang", "python": str(FAKE)},
                "hosts": hosts,
                "model": {"path": str(EXAMPLES / "target"), "name": "tiny"},
                "draft": str(EXAMPLES / "draft"),
                "speculative": {"algorithm": "EAGLE3"},
                "port": port,
                "env": {"FAKE": json.dumps({"lifetime": 120, **wrong})},
                "ready": {"deadline": 30, "stall": 15, "patience": 5},
                "bench": {"prompts": ["count on", "go on"], "rounds": 2},  # every test pays for it
                **fields,
            },
        )
        return int(port)

    def argv(self, *words: str) -> list[str]:
        return [*self.before, sys.executable, "-m", "deploy", *words]

    def run(self, *words: str, env: Mapping[str, str] | None = None, timeout: float = 300.0) -> Done:
        """Run the real command line in the project, to its end."""
        done = subprocess.run(
            self.argv(*words), cwd=self.folder, env={**self.environ, **(env or {})}, capture_output=True, text=True,
            timeout=timeout, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        return Done(done.returncode, done.stdout, done.stderr)

    @contextmanager
    def started(self, *words: str, **env: str) -> Iterator[subprocess.Popen[str]]:
        """The command line while it runs; it is killed at the end if it still does."""
        process = subprocess.Popen(
            self.argv(*words), cwd=self.folder, env={**self.environ, **env}, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def status(self) -> dict[str, Any]:
        """The first row of `deploy status --json`."""
        rows: list[dict[str, Any]] = self.run("status", "--json").json
        return rows[0]

    @property
    def last(self) -> Path:
        """The record of the last run."""
        # of two that began in the same second, the one that was written last
        runs = [(found.name[:15], found.stat().st_mtime_ns, found) for found in (self.folder / "runs").iterdir()]
        return max(runs)[2]

    def events(self, run: str = "") -> list[dict[str, Any]]:
        """The recorded events of a run, or of the last one."""
        folder = self.folder / "runs" / run if run else self.last
        return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]

    def told(self, fact: str) -> list[Any]:
        """The values of a fact in the events of the last run."""
        return [event["facts"][fact] for event in self.events() if fact in event.get("facts", {})]


def free_port() -> int:
    """A TCP port of loopback that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# For whatever must happen at last, on a machine that does ten other things: it is waited for no longer than it takes,
# and only a test that fails comes to its end.
PATIENCE = 180.0


def until(condition: Callable[[], Any], seconds: float = PATIENCE, what: str = "", every: float = 0.05) -> Any:
    """Wait until a condition is true, and give what it gave."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what or condition}")
        time.sleep(every)
    return found


def ended(folder: Path) -> None:
    """Kill what still runs on this machine of the project in `folder`."""
    for run in (folder / "work").glob("*/*/runs/*"):
        for pid in with_run(run.name):
            os.kill(pid, signal.SIGKILL)


def with_run(run: str) -> list[int]:
    """Pids of living processes of this machine whose environment carries the run's id."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            environ = (folder / "environ").read_bytes().split(b"\0")
            state = (folder / "stat").read_text().rpartition(") ")[2].split()[0]
        except OSError:
            continue
        marked = any(word.startswith(b"DEPLOY_SERVER=") and word.endswith(f"/{run}".encode()) for word in environ)
        if marked and state not in "ZX":
            found.append(int(folder.name))
    return found


def listens(port: int) -> bool:
    """Whether somebody accepts connections on loopback."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
