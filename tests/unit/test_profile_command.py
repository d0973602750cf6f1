"""`deploy profile`, as a user calls it: stdout is data, and an empty folder will do."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from deploy import project
from tests.project import PATIENCE

ENVIRONMENT = {"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": "/usr/bin:/bin"}


def deploy(*words: str, folder: Path, code: int = 0) -> str:
    argv = [sys.executable, "-m", "deploy", "profile", *words]
    done = subprocess.run(
        argv, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("fleet")
    (root / "profiles").mkdir()
    (root / "inventory.yaml").write_text("hosts: {gpu1: {set: {port: 7}}, gpu2: }")
    (root / "profiles/mine.yaml").write_text('# My own one\nextends: local\nhosts: all\nsmoke: {ask: "Wie geht\'s?"}\n')
    return root


def test_without_a_project_the_built_in_profiles_are_there(tmp_path):
    found = json.loads(deploy("list", "--json", folder=tmp_path))
    assert [row["name"] for row in found] == ["kimi-eagle3", "local", "local-sglang", "local-vllm"]
    shown = json.loads(deploy("show", "local", "--json", folder=tmp_path))
    assert shown["draft"]["path"] == str(project.builtin() / "examples/tiny-eagle3/draft.gguf")


def test_a_project_has_its_own_profiles_beside_them(fleet):
    assert deploy("list", folder=fleet / "profiles").splitlines()[-1] == "mine          My own one"


def test_what_is_shown_is_yaml_that_a_profile_could_have(fleet):
    shown = yaml.safe_load(deploy("show", "mine", "bench.max_tokens=2", folder=fleet))
    assert (shown["bench"]["max_tokens"], shown["smoke"]["ask"], shown["port"]) == (2, "Wie geht's?", 30080)


def test_a_profile_is_shown_as_it_is_on_a_host(fleet):
    assert json.loads(deploy("show", "mine", "--host", "gpu1", "--json", folder=fleet))["port"] == 7
    assert "means 2 hosts" in deploy("show", "mine", "--host", "all", folder=fleet, code=2)


def test_every_value_is_explained(fleet):
    lines = deploy("show", "mine", "draft=x", "--explain", "--host", "gpu1", folder=fleet).splitlines()
    told = {line.split()[0]: line.split(maxsplit=2)[-1] for line in lines}
    assert told["port"] == "host inventory.yaml:1"
    assert told["draft.path"] == "command line draft=x"
    assert told["hosts"] == "profile profiles/mine.yaml:3"
    assert told["model.path"].startswith(f"extends {project.builtin()}/profiles/local.yaml:")
    assert told["parallel.tp"] == "default"
    rows = json.loads(deploy("show", "mine", "--explain", "--json", folder=fleet))
    assert {"key": "nodes", "value": 1, "kind": "default", "where": ""} in rows


def test_a_mistake_ends_with_2_and_says_what_was_meant(fleet):
    told = deploy("show", "mine", "parallel.tpp=2", folder=fleet, code=2)
    assert "there is no key 'parallel.tpp' in a profile" in told
    assert "did you mean parallel.tp?" in told


def test_the_schema_is_json(tmp_path):
    assert "extends" in json.loads(deploy("schema", folder=tmp_path))["properties"]


def test_the_command_imports_nothing_heavy():
    program = "import sys, deploy.commands.profile; sys.exit(bool({'pydantic', 'yaml', 'rich'} & set(sys.modules)))"
    assert (
        subprocess.run([sys.executable, "-c", program], env=ENVIRONMENT, check=False, timeout=PATIENCE).returncode == 0
    )
