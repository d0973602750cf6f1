"""A project on this machine, over the local transport, with nothing left running at its end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.project import Project, with_run


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path / "project")
    yield made
    for run in (made.folder / "work").glob("*/*/runs/*"):
        for pid in with_run(run.name):
            os.kill(pid, signal.SIGKILL)
