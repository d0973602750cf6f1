"""A fake SGLang whose draft is exchanged by the command line, time and again; what serves is seen from outside."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from subprocess import Popen
from typing import Any

from tests import marked
from tests.project import SWAPPABLE, Done, Project, ended, until

LEASE = 3.0  # seconds after which the lock of a client that was killed is free
GARBAGE = ("two drafts speak at once", "the target is not itself")
RIGHT = "The capital of France is Paris."


@dataclass(frozen=True)
class Look:
    """What runs, and what it serves."""

    pid: int
    run: str
    accepts: float


@dataclass
class Stand:
    """A project with one server, and two drafts that take each other's place."""

    project: Project
    port: int
    drafts: dict[float, Path]  # by accept length
    heard: list[str] = field(default_factory=list)  # what a client has got since `listening`
    failed: int = 0  # of its requests
    held_up: set[int] = field(default_factory=set)  # pids of exchanges that stood still

    @staticmethod
    @contextmanager
    def up(folder: Path, **how: Any) -> Iterator[Stand]:
        """With the first draft brought up."""
        project = Project(folder / "project", lease=LEASE)
        (project.folder / "breakpoints").mkdir()
        drafts = {accepts: marked.draft(folder / f"draft-{accepts}", accepts) for accepts in (2.5, 1.5)}
        port = project.fake(**_profile(project, drafts[2.5], how))
        stand = Stand(project, port, drafts)
        stand.faults()
        try:
            stand.passes("up", "profile=fake")
            yield stand
        finally:
            ended(project.folder)

    # ---- what is asked of the tool

    def run(self, *words: str) -> Done:
        return self.project.run(*words)

    def passes(self, *words: str) -> Done:
        done = self.run(*words)
        assert done.code == 0, done.out + done.err
        return done

    def restart(self, *words: str) -> Done:
        """With the draft that does not serve."""
        return self.passes("restart", "profile=fake", "--ckpt", str(self.drafts[self.other]), *words)

    def faults(self, **paths: str) -> None:
        """From now on these, by the last word of a path: `begin`, `update`, `end`, `pause`, `continue`, ..."""
        _faults(self.project).write_text(json.dumps({PATHS[name]: fault for name, fault in paths.items()}))

    @property
    def served(self) -> Path:
        return self.drafts[self.look().accepts]

    @property
    def other(self) -> float:
        """The accept length of the draft that does not serve."""
        served = self.look().accepts
        return next(accepts for accepts in self.drafts if accepts != served)

    # ---- what is seen from outside

    @property
    def current(self) -> Path:
        (found,) = (self.project.folder / "work").glob("*/fake/current")
        return found.resolve()

    @property
    def launched(self) -> Path:
        """The folder of the run that has launched the server."""
        return (self.current / "pid").resolve().parent

    def leftovers(self) -> list[Path]:
        """What nothing is left of: the mark of an exchange, a piece of a draft in shared memory."""
        return [
            *self.launched.glob("swap.json*"),
            *(path for pid in self.held_up for path in Path("/dev/shm").glob(f"torch_{pid}_*")),
        ]

    def look(self) -> Look:
        current = self.current
        accepts = min(self.drafts, key=lambda known: abs(known - self.accepts()))
        return Look(int((current / "pid").read_text().split()[0]), current.name, accepts)

    def accepts(self) -> float:
        return float(self._generate()["meta_info"]["spec_accept_length"])

    @contextmanager
    def listening(self) -> Iterator[None]:
        """A client that asks all the time; at the end it has heard no mixture of two drafts."""
        self.heard.clear()
        self.failed = 0
        enough = threading.Event()
        client = threading.Thread(target=self._listen, args=(enough,))
        client.start()
        try:
            yield
        finally:
            enough.set()
            client.join()
        assert self.heard
        assert {text for text in self.heard if not text.startswith(RIGHT)} == set()

    def _listen(self, enough: threading.Event) -> None:
        while not enough.is_set():
            try:
                self.heard.append(self._generate("capital of France?")["text"])
            except (OSError, ValueError, HTTPException):
                self.failed += 1
                time.sleep(0.05)
            time.sleep(0.04)

    def _generate(self, prompt: str = "count on") -> Any:
        body = json.dumps({"text": prompt, "sampling_params": {"max_new_tokens": 61}}).encode()
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/generate", body, timeout=30) as answer:
            return json.load(answer)

    def serves(self) -> bool:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}/ready", timeout=5).close()
        except OSError:
            return False
        return self.accepts() > min(self.drafts) - 0.2

    # ---- being held

    @contextmanager
    def held(self, where: str, *words: str) -> Iterator[Popen[str]]:
        """A command whose exchange stands still in the server, before or after it has done what it is asked for."""
        folder = self.project.folder / "breakpoints"
        name, _, done = where.partition(" ")
        (folder / "here.at").write_text(f"POST {PATHS[name]} {done}".strip())
        with self.project.started(*words) as client:
            until(lambda: (folder / "here.hit").exists() or client.poll() is not None, 30, where)
            assert client.poll() is None, client.communicate()
            self.held_up.update(self.exchanges())
            try:
                yield client
            finally:
                self.release()

    def release(self) -> None:
        for left in (self.project.folder / "breakpoints").iterdir():
            left.unlink()

    def kill_exchange(self) -> None:
        """kill -9 for the program on the host."""
        (pid,) = self.exchanges()
        os.kill(pid, signal.SIGKILL)
        until(lambda: not self.exchanges(), 10, "the program's end")

    def exchanges(self) -> list[int]:
        """The programs that exchange the draft of this project's server, by their text on their command line."""
        found = {}  # pid -> its parent's
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "cmdline").read_bytes()
                state, parent = (folder / "stat").read_text().rpartition(") ")[2].split()[:2]
                home = (folder / "environ").read_bytes()
            except OSError:
                continue
            ours = f"HOME={self.project.folder}/home\0".encode() in home
            if ours and state not in "ZX" and b"Exchange the weights of the draft" in words:
                found[int(folder.name)] = int(parent)
        return sorted(set(found) - set(found.values()))  # a shell that waits for it has the text too


PATHS = {
    "pause": "/pause_generation",
    "check": "/weights_checker",
    "begin": "/begin_weight_update",
    "update": "/update_weights_from_tensor",
    "end": "/end_weight_update",
    "flush": "/flush_cache",
    "continue": "/continue_generation",
}


def _faults(project: Project) -> Path:
    return project.folder / "faults.json"


def _profile(project: Project, draft: Path, how: dict[str, Any]) -> dict[str, Any]:
    fake = {"breakpoints": str(project.folder / "breakpoints"), "faults": f"@{_faults(project)}", "lifetime": 600}
    return {
        "engine": {"name": "sglang", "python": str(SWAPPABLE)},
        "draft": str(draft),
        "fake": fake,
        "bench": {"prompts": ["count on", "go on"], "rounds": 1},
        **how,
    }
