"""An installed package works in an empty folder: the built-in project and everything it names are in the wheel."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.project import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the checkout and installed into a folder of its own, without its dependencies."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    build = [*pip, "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    install = [*pip, "install", "-q", "--no-deps", "--no-index", "--target", str(folder / "site"), str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    return folder / "site"


def run(site: Path, folder: Path, *words: str) -> str:
    environ = {**os.environ, "PYTHONPATH": str(site), "XDG_STATE_HOME": str(folder / "state")}
    done = subprocess.run(
        [sys.executable, "-m", "deploy", *words], cwd=folder, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_built_in_profile_is_planned_from_an_empty_folder(site, tmp_path):
    told = run(site, tmp_path, "plan", "profile=local", "--offline")
    assert f"{site}/deploy/builtin/examples/tiny-eagle3/draft.gguf" in told


@pytest.mark.parametrize("name", ["local", "local-sglang", "local-vllm", "kimi-eagle3"])
def test_every_shipped_profile_is_there(site, tmp_path, name):
    assert name in run(site, tmp_path, "profile", "list")


def test_the_report_has_its_style(site):
    assert "prefers-color-scheme" in (site / "deploy/report/style.css").read_text()


def test_what_is_executable_stays_so(site):
    assert os.access(site / "deploy/builtin/hooks/fix_eagle3_keys", os.X_OK)


@pytest.mark.parametrize("name", ["sglang_cpu", "vllm_cpu"])
def test_an_environment_has_its_parts(site, name):
    folder = site / "deploy/environments" / name
    assert {"requirements.txt", "requirements-no-deps.txt", "README.md", "shim"} <= {p.name for p in folder.iterdir()}
