"""What is kept of a server that died or fell silent: on one host, on all of a group's, before it is stopped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.project import Project, with_run
from tests.run.test_odd_answers import ODD

QUICK = {"deadline": 60, "stall": 3, "patience": 5}
LEAK = "server_args=ServerArgs(api_key='key-of-a-stranger', admin_api_key=None, hf_token='hf_stranger')"


def kept(project: Project, host: str = "localhost") -> tuple[dict[str, Any], dict[str, str]]:
    """The `evidence` event of a host in the last run, and the files that it names."""
    (event,) = (one for one in project.events() if one["kind"] == "evidence" and one["host"] == host)
    folder = Path(event["facts"]["folder"])
    assert folder == next(project.folder.glob(f"runs/*/hosts/{host}")) / "evidence"
    assert sorted(event["facts"]["files"]) == sorted(path.name for path in folder.iterdir()), (
        "the event has the names, and no text"
    )
    return event, {name: (folder / name).read_text() for name in event["facts"]["files"]}


def test_a_silent_server_is_looked_at_and_then_stopped_where_the_profile_says_so(project: Project) -> None:
    fake = {"silent_at": "kv", "children": 2, "lifetime": 60}
    env = {"ODD": json.dumps({"log": LEAK}), "FAKE": json.dumps(fake), "SPT_NOENV": "1"}
    project.fake(
        engine={"name": "sglang", "python": str(ODD)}, env=env, ready=QUICK, on_failure="stop",
        secrets={"SERVER_KEY": "api-key", "OTHER": "env"}, parallel={"tp": 2},
    )  # fmt: skip
    done = project.run("up", "profile=fake", env={"SERVER_KEY": "key-of-ours", "OTHER": "Load weight begin"})
    event, files = kept(project)
    assert (done.code, event["step"]) == (7, "wait"), done.err
    assert str(event["facts"]["folder"]) in done.err
    assert "sglang::scheduler_TP1" in files["processes.txt"], "it was looked at while it lived"
    assert "KV Cache" in files["ranks.log"].partition("== TP1")[2]
    assert with_run(event["facts"]["folder"].split("/")[-4]) == [], "and stopped afterwards"
    events = [one for one in project.events() if one["kind"] != "run_started"]  # the plan has the variable that leaks
    told = json.dumps([files, events, done.out, done.err])
    secrets = ("key-of-ours", "key-of-a-stranger", "hf_stranger", "Load weight begin")
    assert [secret for secret in secrets if secret in told] == []
    assert "api_key='***'" in told
    log = (Path(event["facts"]["folder"]).parent / "server.log").read_text()
    assert [secret for secret in secrets if secret in log] == [], "the end of its log is kept besides"
    modes = [path.stat().st_mode & 0o077 for path in project.folder.glob("runs/*/hosts/**/*")]
    assert (len(modes) > len(files) + 2, set(modes)) == (True, {0})


def test_a_server_that_died_is_looked_at_and_what_is_left_of_it_is_left(project: Project) -> None:
    project.fake(fake={"die_at": "kv", "orphans": 1})
    done = project.run("up", "profile=fake")
    _, files = kept(project)
    assert done.code == 6, done.err
    assert "sglang::scheduler_TP0" in files["processes.txt"]
    assert "Not enough memory" in files["server.log"]
    assert len(with_run(project.status()["run"])) == 1


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Project]:
    """Two hosts on this machine, each with a work folder of its own, and a server over both."""
    names = ("a", "b")
    hosts = {
        name: {"transport": "local", "work": f"{tmp_path}/{name}", "lock": f"{tmp_path}/{name}.lock"} for name in names
    }
    made = Project(tmp_path / "project", hosts)
    yield made
    assert made.run("down").code == 0


def test_all_hosts_of_a_group_are_looked_at_though_one_failed(two: Project) -> None:
    fakes: dict[str, dict[str, Any]] = {"a": {"phase_seconds": {"graphs": 30}}, "b": {"die_at": "kv"}}
    inventory = two.folder / "inventory.yaml"
    hosts = yaml.safe_load(inventory.read_text())["hosts"]
    for name, fake in fakes.items():
        hosts[name]["env"] = {"FAKE": json.dumps({"lifetime": 60, **fake})}
    inventory.write_text(yaml.safe_dump({"hosts": hosts}))
    two.fake(nodes=2, env={}, waive=["nccl"])  # both are this machine, whose own name leads to loopback
    done = two.run("up", "profile=fake")
    assert done.code == 6, done.err
    (_, head), (_, follower) = kept(two, "a"), kept(two, "b")
    assert "launch_server" in head["processes.txt"]
    assert "launch_server" not in follower["processes.txt"]
    assert "Not enough memory" in follower["server.log"]
    assert {row["host"]: row["state"] for row in two.run("status", "--json").json} == {
        "a": "loading",
        "b": "dead",
    }
