"""What a run leaves behind on this machine: all that it was, and nothing that is secret."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from deploy.profile import Profile
from deploy.runs import kept
from tests.project import Project

SECRETS = {"SERVER_KEY": "key-1234567890", "HF_TOKEN": "tok-abcdefghij"}


def recorded(project: Project) -> list[Path]:
    """The folders of its runs, oldest first."""
    return sorted((project.folder / "runs").iterdir(), key=lambda folder: (folder / "events.jsonl").stat().st_mtime)


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def at_git(project: Project) -> Project:
    """The project, committed."""
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    project.fake(secrets={"SERVER_KEY": "api-key", "HF_TOKEN": "env"}, port=30321)
    for words in (["init", "-b", "main", "."], ["add", "."], [*identity, "commit", "-m", "first"]):
        subprocess.run(["git", *words], cwd=project.folder, check=True, capture_output=True)
    return project


def test_a_run_keeps_all_that_it_was(at_git: Project) -> None:
    project = at_git
    port = yaml.safe_load((project.folder / "profiles" / "fake.yaml").read_text())["port"]
    assert project.run("up", "profile=fake", "smoke.max_tokens=50", env=SECRETS).code == 0
    assert project.run("smoke", env=SECRETS).code == 0
    first, second = recorded(project)
    whole = {"checkpoints.json", "events.jsonl", "plan.json", "profile.yaml", "project.json", "result.json"}
    whole |= {"versions.json"}
    own = {f"hosts/localhost/{name}" for name in ("env", "launch.sh", "server.log", "smoke.json")}
    assert whole | own <= files(first) and whole | own <= files(second)
    text = "".join(path.read_text() for folder in (first, second) for path in folder.rglob("*") if path.is_file())
    assert not [value for value in SECRETS.values() if value in text]
    run = kept.read(first)
    assert (run.problems, len(run.project["commit"]), run.project["branch"]) == ((), 40, "main")
    assert (
        run.versions["hosts"]["localhost"]["engine_version"]
        == kept.read(second).versions["hosts"]["localhost"]["engine_version"]
    )
    draft, model = run.checkpoints["draft"], run.checkpoints["model"]["localhost"]
    assert draft["digest"].startswith(project.status()["draft"])
    assert {file["path"] for file in draft["files"]} == {"config.json", "model.safetensors"}
    assert len(model["identity"]) == 64
    profile = yaml.safe_load((first / "profile.yaml").read_text())
    assert Profile.model_validate({"name": "fake", **profile}) == Profile.model_validate(run.profile)
    assert (profile["port"], profile["smoke"]["max_tokens"]) == (port, 50)
    host = first / "hosts" / "localhost"
    assert "HF_TOKEN=***" in (host / "env").read_text() and f"--port {port}" in (host / "launch.sh").read_text()
    asked = json.loads((host / "smoke.json").read_text())
    assert [one["request"]["max_tokens"] for one in asked[:2]] == [50, 50] and "4" in json.dumps(asked[0]["answer"])
    assert "Decode batch" in (host / "server.log").read_text()


def test_a_failed_run_keeps_what_failed_and_what_it_went_back_to(project: Project, tmp_path: Path) -> None:
    project.fake(on_failure="rollback")
    assert project.run("up", "profile=fake").code == 0
    assert project.run("restart", 'env.FAKE={"answer":"no idea"}').code == 8
    host = recorded(project)[-1] / "hosts" / "localhost"
    assert "no idea" in (host / "smoke.json").read_text()
    back = (host / "rollback" / "smoke.json").read_text()
    assert "no idea" not in back and "4" in back
    assert (host / "server.log").read_text() != (host / "rollback" / "server.log").read_text()


def test_what_ends_a_server_files_nothing_of_it(project: Project) -> None:
    project.fake()
    assert project.run("up", "profile=fake").code == 0
    assert project.run("down", "-y").code == 0
    assert files(recorded(project)[-1]) == {"events.jsonl", "plan.json", "result.json"}
