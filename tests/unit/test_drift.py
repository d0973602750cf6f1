"""What runs against what its profile says today."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy import plan, settings
from deploy.deployment.state import Run
from deploy.plan import Node
from deploy.project import Project
from deploy.status import drift
from deploy.status.drift import Drift

RUN = Run("r1", "/w/r1", {}, None, None, pid="7", ticks="9", alive=True, exit="", stopped="")
PROFILE: Mapping[str, Any] = {
    "engine": {"name": "sglang", "python": "/opt/python"},
    "hosts": "all",
    "model": "/models/kimi",
    "draft": "draft",
    "speculative": {"algorithm": "EAGLE3", "num_steps": 3},
    "args": {"max_running_requests": 8},
    "env": {"A": "1"},
}


def project(folder: Path, **changes: Any) -> Project:
    (folder / "profiles").mkdir(parents=True, exist_ok=True)
    (folder / "inventory.yaml").write_text(yaml.safe_dump({"hosts": {"gpu1": changes.pop("host", {}), "gpu2": {}}}))
    (folder / "profiles" / "kimi.yaml").write_text(yaml.safe_dump({**PROFILE, **changes}))
    return Project(folder)


def launched(at: Project, *words: str) -> tuple[Run, Node]:
    """A run as it was launched with these words."""
    said = settings.load("kimi", words, at, {}, at.root)
    host = said.inventory.hosts["gpu1"]
    node = plan.make({host: said.profile(host)}, None, None).nodes[0]
    manifest = json.loads(json.dumps({"words": words, "node": node.to_json()}))
    return replace(RUN, manifest=manifest), node


CASES: Mapping[str, tuple[dict[str, Any], tuple[str, ...], dict[str, list[Any]]]] = {
    "nothing changed": ({}, (), {}),
    "a flag": ({"args": {"max_running_requests": 16}}, (), {"args.max_running_requests": [8, 16]}),
    "a flag more": (
        {"args": {"max_running_requests": 8, "tp_size": 2}},
        (),
        {"args.tp_size": [None, 2]},
    ),
    "a variable less": ({"env": {}}, (), {"env.A": ["1", None]}),
    "a secret's value is told nowhere": (
        {"env": {"A": "1", "HF_TOKEN": "hf_abc", "URL": "https://me:pass@host/"}, "args": {"x": ["--key", "k"]}},
        (),
        {
            "args.max_running_requests": [8, None],
            "args.x": [None, ["--key", "***"]],
            "env.HF_TOKEN": [None, "***"],
            "env.URL": [None, "https://***@host/"],
        },
    ),
    "the model": ({"model": "/models/other"}, (), {"model.path": ["/models/kimi", "/models/other"]}),
    "a word of the launch is no drift": ({}, ("args.max_running_requests=32",), {}),
    "behind such a word the file may change": (
        {"args": {"max_running_requests": 16}},
        ("args.max_running_requests=32",),
        {},
    ),
    "a value that the inventory has for the host": (
        {"host": {"set": {"port": 31000}}},
        (),
        {"port": [30000, 31000]},
    ),
    "other hosts are no drift of this one": ({"hosts": "gpu1"}, (), {}),
}


@pytest.mark.parametrize("case", CASES)
def test_the_keys_that_no_longer_say_what_runs(case, tmp_path):
    changes, words, keys = CASES[case]
    run, node = launched(project(tmp_path), *words)
    assert Drift(project(tmp_path, **changes)).of(run, node) == {"keys": keys}


def test_another_checkout_of_the_same_project_is_no_drift(tmp_path):
    run, node = launched(project(tmp_path / "mine"))
    assert node.profile.draft is not None
    assert node.profile.draft.path == f"{tmp_path}/mine/draft"
    assert Drift(project(tmp_path / "yours")).of(run, node) == {"keys": {}}
    moved = Drift(project(tmp_path / "yours", draft="other")).of(run, node)
    assert list(moved["keys"]) == ["draft.path"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "there is no profile 'kimi'"),
        ("engine: [", "is not YAML"),
        ("engine: sglang\nhosts: all\nmodel: m\nno_such_key: 1\n", "no_such_key"),
        ("engine: sglang\nhosts: all\n", "model: is missing"),
    ],
)
def test_a_profile_that_cannot_be_read_is_told_and_not_taken_for_the_same(text, why, tmp_path):
    at = project(tmp_path)
    run, node = launched(at)
    file = at.root / "profiles" / "kimi.yaml"
    file.unlink() if text is None else file.write_text(text)
    told = Drift(at).of(run, node)
    assert why in told["error"]
    assert drift.shown(told).startswith("unknown: ")


def test_a_cell_names_a_few_keys():
    keys = {name: [1, 2] for name in "abcde"}
    assert drift.shown({"keys": keys}) == "a, b, c, 2 more"
    assert drift.shown({"keys": {}}) == drift.shown(None) == ""
