"""Installing an engine's environment: with a real virtual environment and pip, and an engine of one small module."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import pytest

from deploy import environments
from deploy.environments import _install, _pip
from deploy.errors import ConfigError, DeployError

ENGINE = """
VERSION = "1.2"
PYTHON = ((3, 11), (3, 99))
GLIBC = (2, 0)
PROOF = "import toy"


def variables(folder):
    return {"PYTHONPATH": str(folder / "shim")}
"""


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """An environment called toy-engine, as one more folder in the package; nothing to download."""
    package = tmp_path / "more" / "toy_engine"
    (package / "shim").mkdir(parents=True)
    (package / "__init__.py").write_text(ENGINE)
    (package / "shim" / "toy.py").write_text("")
    for name in ("requirements.txt", "requirements-no-deps.txt"):
        (package / name).write_text("# nothing\n")
    monkeypatch.setattr(environments, "__path__", [*environments.__path__, str(package.parent)])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delitem(__import__("sys").modules, "deploy.environments.toy_engine", raising=False)
    return package


def made(tmp_path: Path) -> Path:
    [found] = (tmp_path / "cache" / "deploy" / "engines").glob("toy-engine-*/")
    return found


def test_the_tools_own_interpreter_is_always_there():
    found = environments.locate("self")
    assert found is not None
    assert Path(found.python).samefile(environments.install("self", print).python)
    assert found.env == {}


def test_the_names_are_the_folders():
    assert environments.names() == ["sglang-cpu", "vllm-cpu", "self"]


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(ConfigError) as caught:
        environments.install("sglang-gpu", print)
    assert "sglang-cpu" in caught.value.remedy


def test_what_is_not_installed_is_not_found(toy):
    assert environments.locate("toy-engine") is None


def test_an_environment_is_installed_once_and_then_found(toy, tmp_path):
    said: list[str] = []
    first = environments.install("toy-engine", said.append)
    assert environments.locate("toy-engine") == first
    assert first.version == "1.2"
    python = [first.python, "-c", "import toy, sys; print(sys.prefix)"]
    prefix = subprocess.run(python, env={**os.environ, **first.env}, capture_output=True, text=True, check=True).stdout
    assert Path(prefix.strip()) == made(tmp_path) / "venv"
    assert said[0] == "making a virtual environment"

    again: list[str] = []
    assert environments.install("toy-engine", again.append) == first
    assert again == [f"toy-engine 1.2 is there: {made(tmp_path)}"]


def test_what_was_cut_short_starts_over_and_two_at_once_are_one(toy, tmp_path):
    half = _install.folder("toy-engine")
    (half / "venv").mkdir(parents=True)
    (half / "venv" / "left-over").write_text("")
    assert environments.locate("toy-engine") is None
    said: list[str] = []
    threads = [threading.Thread(target=environments.install, args=("toy-engine", said.append)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert said.count("making a virtual environment") == 1
    assert any("another installation holds" in line for line in said)
    assert environments.locate("toy-engine") is not None
    assert not (half / "venv" / "left-over").exists()


def test_other_requirements_are_another_environment(toy):
    before = _install.folder("toy-engine")
    (toy / "requirements.txt").write_text("# something else\n")
    assert _install.folder("toy-engine") != before


def test_another_shim_is_another_environment_whatever_its_files_are(toy):
    before = _install.folder("toy-engine")
    (toy / "shim" / "__pycache__").mkdir()
    (toy / "shim" / "__pycache__" / "toy.pyc").write_text("compiled")
    assert _install.folder("toy-engine") == before
    (toy / "shim" / "toy-1.2.dist-info").mkdir()
    (toy / "shim" / "toy-1.2.dist-info" / "METADATA").write_text("Name: toy")
    assert _install.folder("toy-engine") != before


def test_a_failing_pip_is_told_with_its_last_lines(toy):
    (toy / "requirements.txt").write_text("no-such-thing-anywhere==1\n")
    with pytest.raises(DeployError) as caught:
        environments.install("toy-engine", lambda _: None)
    assert "no-such-thing-anywhere" in caught.value.evidence
    assert environments.locate("toy-engine") is None


def test_an_engine_that_does_not_work_is_not_installed(toy):
    (toy / "shim" / "toy.py").write_text("raise RuntimeError('broken')")
    with pytest.raises(DeployError, match="the engine does not work") as caught:
        environments.install("toy-engine", lambda _: None)
    assert "RuntimeError: broken" in caught.value.evidence
    assert environments.locate("toy-engine") is None


def test_an_interpreter_without_wheels_is_refused_before_anything_is_made(toy, tmp_path):
    (toy / "__init__.py").write_text(ENGINE.replace("(3, 11), (3, 99)", "(3, 8), (3, 9)"))
    with pytest.raises(DeployError, match="no wheels for Python") as caught:
        environments.install("toy-engine", print)
    assert "3.8 to 3.9" in caught.value.remedy
    assert not (tmp_path / "cache").exists()


PIP_LINES = [
    (
        "  Downloading torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl (526.6 MB)\n",
        "downloading torch-2.13.0, 527 MB",
        526.6,
    ),
    (
        "  Using cached triton-3.7.1-cp311-cp311-manylinux_2_28_x86_64.whl (1.2 GB)\n",
        "downloading triton-3.7.1, 1200 MB",
        1200,
    ),
    ("  Downloading jiter-0.19.0-cp311-cp311-manylinux_2_17_x86_64.whl (337 kB)\n", "", 0.337),
    ("  Downloading torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl.metadata (31 kB)\n", "", 0),
    ("Installing collected packages: a, b, c\n", "unpacking 3 packages", 0),
    ("Collecting torch==2.13.0\n", "", 0),
]


@pytest.mark.parametrize(("line", "told", "megabytes"), PIP_LINES)
def test_what_pip_says_becomes_progress(tmp_path, line, told, megabytes):
    said: list[str] = []
    with (tmp_path / "lock").open("w") as lock:
        job = _pip.Job(tmp_path, said.append, lock)
        job._hear(line)
    assert [text.partition(" (")[0] for text in said] == ([told] if told else [])
    assert job.megabytes == pytest.approx(megabytes)
