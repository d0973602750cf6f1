"""The tiny pair on a real engine from an environment of its own, deployed to one place under a shipped profile."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deploy import environments
from deploy.environments import Installed
from deploy.measuring.measurement import Measurement
from tests import overlays, places
from tests.places import Place
from tests.project import Done, Project, free_port, until


def needs(environment: str) -> None:
    """The environment is there; a machine without it skips, CI fails."""
    if environments.locate(environment) is None:
        told = f"deploy engine install {environment}"
        pytest.fail(told) if os.environ.get("CI") else pytest.skip(told)


def overlay(name: str) -> Installed:
    """An environment, or another version on top of one; a machine without it skips, CI fails."""
    base = name if name.endswith("-cpu") else overlays.BASE
    needs(base)
    found = environments.locate(name) if base == name else overlays.locate(name)
    if found is None:
        told = f"python -m tests.overlays {name}"
        if os.environ.get("CI"):
            pytest.fail(told)
        pytest.skip(told)
    return found


class Deployment:
    """A project with the profile `tiny`: a shipped one, on one place and a free port, but for these fields."""

    def __init__(self, project: Project, place: Place, profile: str, **fields: Any) -> None:
        self.project, self.place, self.port = project, place, free_port()
        project.profile("tiny", extends=profile, hosts=place.name, port=self.port, **fields)
        # the environment lies in the user's own cache
        project.environ["XDG_CACHE_HOME"] = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")

    def run(self, *words: str) -> Done:
        return self.project.run(*words, "--json", timeout=600)

    def up(self) -> None:
        done = self.run("up", "profile=tiny")
        assert (done.code, accept_length(done) > 3) == (0, True), done.err

    def measured(self) -> Measurement:
        """What the last run that measured has in its record."""
        found = (self.project.folder / "runs").glob("*/hosts/*/bench.json")
        return Measurement.model_validate_json(max(found, key=lambda path: path.stat().st_mtime_ns).read_text())

    def down_without_a_trace(self) -> None:
        row = self.project.status()
        done = self.run("down")
        assert done.code == 0, done.err
        lock = str(self.place.host.get("lock", self.project.folder / "lock"))
        until(lambda: self.place.left(row, lock) == places.NOTHING, what="no process, no port, no lock")


@contextmanager
def deployment(folder: Path, place: Place, profile: str, **fields: Any) -> Iterator[Deployment]:
    """A deployment, of which nothing is left at the end."""
    with places.project_on(folder, place) as project:
        yield Deployment(project, place, profile, **fields)


def accept_length(done: Done) -> float:
    return float(done.json["verdict"].get("accept_length", 0.0))


def proven(project: Project, *, draft_told: bool) -> None:
    """The last run's record proves who served: the launched process, with its checkpoints; whole and streamed, it
    answered the same, and nothing else was found to be told. `draft_told`: by the server itself.
    """
    row = project.status()
    folder = str(Path(row["folder"]).with_name(row["server"]))
    (identity,) = project.told("identity")
    (owner,) = identity["processes"]
    assert any(word.startswith(folder) for word in owner["cmdline"]), "its draft, as it was launched with"
    assert identity["loaded"]["model"].endswith(("target", "target.gguf"))
    assert identity["loaded"]["draft"] == (f"{folder}/draft" if draft_told else None)
    whole, streamed = project.told("exchange")
    assert whole["answer"]["choices"][0]["message"]["content"].strip() == streamed["answer"]["content"].strip()
    assert [finding for finding in project.told("check") if finding in ("health", "smoke")] == []
