"""The phases of a start, as `wait`, the record, the host and `deploy logs --phase` tell them."""

from __future__ import annotations

import json
import signal
from itertools import pairwise
from typing import Any

from tests.project import PATIENCE, Project, until

STAGES = ["starting", "rendezvous", "target weights", "draft weights", "target kv cache", "target graphs"]
STAGES += ["draft graphs", "scheduler", "http", "warm-up"]


def waited(project: Project) -> list[dict[str, Any]]:
    """What `wait` said of where the server stands."""
    return [
        event["facts"]
        for event in project.events()
        if event["kind"] == "said" and event["step"] == "wait" and "phase" in event["facts"]
    ]


def stages(facts: list[dict[str, Any]]) -> list[str]:
    named = [f"{told.get('component', '')} {told['phase']}".strip() for told in facts]
    return [stage for before, stage in pairwise(["", *named]) if stage != before]


def test_a_second_start_knows_how_long_it_takes(project: Project) -> None:
    project.fake(fake={"load_seconds": 3, "ranks": 2})
    assert project.run("up", "profile=fake").code == 0
    first = waited(project)
    assert stages(first) == [*STAGES, "ready"]
    assert not any("left" in told for told in first), "nothing is known yet"

    (written,) = project.folder.glob("work/*/fake/runs/*/phases.json")
    kept = json.loads(written.read_text())["seconds"]
    assert list(kept) == STAGES
    assert 2 < sum(kept.values()) < 60
    assert project.run("history", "last", "--json").json["phases"] == {"localhost": kept}

    done = project.run("restart")
    assert done.code == 0, done.err
    second = waited(project)
    assert abs(second[0]["left"] - (sum(kept.values()) - second[0]["elapsed"])) < 1
    assert second[-1].get("left", 0) == 0
    assert stages(second) == [*STAGES, "ready"]

    shown = project.run("logs", "--phase")
    assert shown.code == 0, shown.err
    rows = shown.out.splitlines()
    assert [row[:15].strip() for row in rows] == [*STAGES, "ready"]
    document = project.run("logs", "--phase", "--json").json["localhost"]
    assert (document["ready"], list(document["seconds"])) == (True, STAGES)
    assert project.run("logs", "--phase", "--jsonl").code == 2

    manifest = max(project.folder.glob("work/*/fake/runs/*/manifest.json"))
    told = json.loads(manifest.read_text())
    told["node"]["profile"]["engine"]["name"] = "command"
    manifest.write_text(json.dumps(told))
    refused = project.run("logs", "--phase")
    assert (refused.code, "has no known phases" in refused.err) == (2, True), refused.err


def test_a_start_that_nobody_waited_for_counts_too(project: Project) -> None:
    project.fake(fake={"phase_seconds": {"weights": 3}, "stamps": str(project.folder)}, draft=None, speculative=None)
    with project.started("up", "profile=fake") as first:
        until(lambda: list(project.folder.glob("work/*/fake/runs/*/pid")), what="the launch")
        first.send_signal(signal.SIGINT)
        assert first.wait(PATIENCE) == 130
    until((project.folder / "ready").exists, what="the server to be ready")
    project.run("up", "profile=fake", "bench.prompts=[]")
    (took,) = project.told("phases")
    assert 2 <= took["target weights"] < 6  # 3 s, by stamps of whole seconds
    assert len(list(project.folder.glob("work/*/fake/runs/*"))) == 1, "the server was adopted"
