"""A host of the fault table with two operators: an earlier server, a command that is held at a moment, what is seen."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import places
from tests.faults.host import Look, look
from tests.faults.moments import MOMENTS, Breakpoints
from tests.fleet import Keys, TestHost
from tests.places import Place
from tests.project import EXAMPLES, PATIENCE, Done, Project, free_port, until

UP = ("up", "profile=fake", "draft.path=draft/two")
LEASE = 3.0  # seconds after which the lock of a client that is not heard is free
# A host that says nothing for six seconds counts as gone, here: a busy machine may well say nothing for two.
IMPATIENT = "Host *\n ServerAliveInterval 1\n ServerAliveCountMax 6\n ConnectTimeout 6"
WORK, DISK = "/srv/work", "80m"  # a disk of its own, with a little more than the check `disk` wants
BREAKPOINTS = "/run/breakpoints"
MARK = "FAULT_ROW"  # in the environment of a row's clients


@dataclass
class Case:
    """A host and its two operators, who have the same project."""

    host: TestHost
    place: Place
    project: Project
    other: Project
    breakpoints: Breakpoints
    port: int
    before: Look
    done: Done | None = None  # how the command ended to which the fault happened
    _client: list[subprocess.Popen[str]] = field(default_factory=list)

    # ---- a command, to its end or to a moment

    def up(self, *words: str) -> None:
        """Bring up what is there before the command."""
        done = self.project.run(*words)
        assert done.code == 0, f"the earlier server: {done.err}"

    @contextmanager
    def held(self, moment: str, *words: str) -> Iterator[None]:
        """Start a command and hold it at the moment; let it go on to its end after that."""
        wanted = MOMENTS[moment]
        self.breakpoints.set(wanted)
        with self.project.started(*words) as client:
            self._client.append(client)
            try:
                self.breakpoints.reach(wanted, client)
                until(lambda: wanted.step in ("", self.step()), what=f"the step {wanted.step}")
                yield
            finally:
                self.breakpoints.release()

    @property
    def client(self) -> subprocess.Popen[str]:
        """The command that is held."""
        return self._client[-1]

    def end(self) -> None:
        """Let the held command go on, and come to its end."""
        self.breakpoints.release()
        out, err = self.client.communicate(timeout=PATIENCE)
        self.done = Done(self.client.returncode, out, err)

    def step(self) -> str:
        """The step that the held command is in."""
        try:
            return next((e["step"] for e in reversed(self.project.events()) if e["kind"] == "step_started"), "")
        except (OSError, IndexError, json.JSONDecodeError):
            return ""

    # ---- looking

    def look(self) -> Look:
        """The host, past the tool."""
        return look(self.place)

    def lapsed(self) -> None:
        """Wait until nobody holds the host's lock."""
        until(lambda: not self.look().held, what="the lock to be free")

    def left_here(self) -> list[str]:
        """Living processes on this machine that a client of this row has started."""
        mark, found = f"{MARK}={self.project.environ[MARK]}".encode(), []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    found.append((folder / "cmdline").read_text().replace("\0", " "))
            except OSError:
                continue
        return [words for words in found if words]


@contextmanager
def case(host: TestHost, keys: Keys, folder: Path, engine: str, row: str) -> Iterator[Case]:
    """A clean host, and its two operators; at the end nothing of them is left."""
    place, port = places.over_ssh(host, lease=LEASE, work=WORK), free_port()
    folder.mkdir()
    config = folder / "ssh_config"
    config.write_text(keys.config.read_text().replace("Host *", IMPATIENT))
    mount = 'mkdir -p "$1"; mountpoint -q "$1" || mount -t tmpfs -o "size=$2" tmpfs "$1"'
    place.inside("sh", "-c", mount, "sh", WORK, DISK)
    breakpoints, before, on = Breakpoints(host, BREAKPOINTS), look(place), places.project_on
    with on(folder / "one", place, swept=[WORK]) as one, on(folder / "two", place, swept=[WORK]) as two:
        for project in (one, two):
            WRITTEN[engine](project, port)
            # HOME: what others run on this machine is no part of it
            more = {"DEPLOY_SSH_CONFIG": str(config), "HOME": str(folder), MARK: f"{os.getpid()}-{row}"}
            project.environ |= more
        yield Case(host, place, one, two, breakpoints, port, before)
    left = look(place)
    assert (left.others(before, serves=False), left.stale) == ([], []), "the row is not clean"


def _fake(project: Project, port: int) -> None:
    """The profile of nearly all rows: the fake server, and two drafts that load as well."""
    project.fake(port=port, draft="draft/one", fake={"breakpoints": BREAKPOINTS}, **_common(project))
    for name, more in (("one", ""), ("two", "\n")):
        draft = project.folder / "draft" / name
        shutil.copytree(EXAMPLES / "draft", draft)
        (draft / "config.json").write_text((EXAMPLES / "draft/config.json").read_text() + more)


def _llamacpp(project: Project, port: int) -> None:
    """The same on the real llama.cpp; a draft under another name is another one."""
    project.profile("fake", extends="local", hosts="all", port=port, draft="draft/one", **_common(project))
    for name in ("one", "two"):
        (project.folder / "draft" / name).mkdir(parents=True)
        shutil.copy(EXAMPLES / "draft.gguf", project.folder / "draft" / name / f"{name}.gguf")


WRITTEN = {"fake": _fake, "llamacpp": _llamacpp}


def _common(project: Project) -> dict[str, Any]:
    """A hook at each point that does nothing, and little patience."""
    (project.folder / "hooks").mkdir()
    for hook in ("nothing", "bad"):
        (project.folder / "hooks" / hook).write_text("#!/bin/sh\n")
        (project.folder / "hooks" / hook).chmod(0o755)
    nothing = [{"run": "hooks/nothing", "on": "host"}]
    points = ("prepare", "ready", "failed", "stopped")
    return {"hooks": dict.fromkeys(points, nothing), "ready": {"deadline": 60, "stall": 40, "patience": 2}}


def fake(**wrong: Any) -> str:
    """The word that makes the fake server misbehave."""
    return f"env.FAKE={json.dumps({'lifetime': 120, 'breakpoints': BREAKPOINTS, **wrong})}"
