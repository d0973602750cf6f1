"""Rounds against a real process that answers: what is kept of them, and what makes them no number at all."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deploy.measuring.measurement import Measurement
from deploy.measuring.sample import Sample
from tests.project import PATIENCE, Project, until

ODD = Path(__file__).parent.parent / "odd_server.py"
LADDER: dict[str, Any] = {"prompts": "mine.jsonl", "max_tokens": 12, "rounds": 2, "concurrency": [3, 1]}
MINE = [
    {"prompt": "Add 3 and 4.", "class": "arithmetic", "id": "add"},
    {"prompt": "Sort a list.", "class": "code", "id": "sort"},
    {"messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Why?"}], "class": "prose"},
]
LONG: dict[str, Any] = {"prompts": ["one", "two"], "rounds": 4, "max_tokens": 40}
SLOW = {"tokens_per_second": 80}  # half a second an answer


def kept(project: Project) -> Measurement:
    """What lies beside the run on its host; the record has the same."""
    folder = Path(project.status()["folder"])
    found = Measurement.model_validate_json((folder / "bench.json").read_text())
    recorded = project.last / "hosts" / "localhost"
    assert Measurement.model_validate_json((recorded / "bench.json").read_text()) == found
    assert lines(recorded / "bench.jsonl") == lines(folder / "bench.jsonl")
    return found


def lines(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_ladder_of_rounds_is_kept_with_all_that_it_was_measured_on(project: Project) -> None:
    """Loosely: what a fake server's speed is, is nobody's matter."""
    (project.folder / "mine.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in MINE))
    project.fake(bench={**LADDER, "slo": {"ttft": 60}}, args={"enable-metrics": True})
    done = project.run("up", "profile=fake")
    assert done.code == 0, done.err
    found = kept(project)
    assert [rung.concurrency for rung in found.rungs] == [1, 3]
    assert [(rung.rounds, rung.requests, rung.errors, rung.truncated) for rung in found.rungs] == [
        (2, 6, 0, 6),
        (2, 12, 0, 12),  # two for each stream
    ]
    assert all(rung.tokens == 12 * rung.requests for rung in found.rungs)
    assert [(turn.concurrency, turn.number) for turn in found.turns] == [(1, 1), (3, 1), (1, 2), (3, 2)]
    assert [turn.counted.requests if turn.counted else None for turn in found.turns] == [3, 6, 3, 6]
    assert found.acceptance is not None
    assert (found.on.num_steps, found.acceptance.source) == (3, "the answers")
    assert set(found.acceptance.by_class) == {"arithmetic", "code", "prose"}
    assert set(found.acceptance.by_concurrency) == {"1", "3"}
    assert set(found.answers) == {"arithmetic/add", "code/sort", "prose/1"}
    assert found.figures().keys() >= {"ttft_p95@3", "tok_s", "goodput@1", "accept_length@3"}
    assert (found.on.prompts, found.on.hosts, found.on.draft_path is not None) == ("mine.jsonl", ("localhost",), True)
    folder = Path(project.status()["folder"])
    samples = [Sample.from_json(line) for line in lines(folder / "bench.jsonl")]
    assert len(samples) == 18
    assert {sample.kind for sample in samples} == {"arithmetic", "code", "prose"}
    again = project.run("up", "profile=fake", f"bench.prompts={folder / 'prompts.jsonl'}")
    assert again.code == 0, again.err
    assert kept(project).on.prompts_digest == found.on.prompts_digest


@contextmanager
def measuring(project: Project, *words: str) -> Iterator[Any]:
    """An `up` that has come to its first round; its end is looked at afterwards."""
    runs = project.folder / "runs"
    earlier = set(runs.iterdir()) if runs.exists() else set()
    with project.started("up", "profile=fake", *words) as client:
        until(lambda: runs.exists() and set(runs.iterdir()) - earlier, what="a record")
        until(lambda: _rounds(project) >= 1, what="the first round")
        yield client


def _rounds(project: Project) -> int:
    """Rounds that have begun."""
    try:
        return sum(str(event.get("text")).startswith("round ") for event in project.events())
    except (OSError, IndexError, ValueError):
        return 0


def test_others_who_ask_meanwhile_leave_no_number(project: Project) -> None:
    port = project.fake(bench=LONG, fake=SLOW, args={"enable-metrics": True})
    body = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "x"}], "max_tokens": 5}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/chat/completions", body)
    with measuring(project) as client:
        urllib.request.urlopen(request, timeout=PATIENCE).read()
        _, err = client.communicate(timeout=PATIENCE)
    assert client.returncode == 10, err
    assert "others asked meanwhile: the server counted 9 requests and 325 tokens, of which 8 and 320 are ours" in err
    found = kept(project)
    assert (found.why.startswith("others asked"), found.figures(), found.acceptance) == (True, {}, None)


def test_requests_that_fail_leave_no_number_and_end_the_rounds(project: Project) -> None:
    odd = project.folder / "odd.json"
    odd.write_text("{}")
    project.fake(
        bench={**LONG, "rounds": 40},
        engine={"name": "sglang", "python": str(ODD)},
        env={"ODD": f"@{odd}", "FAKE": json.dumps({"lifetime": 120, **SLOW})},
    )
    with measuring(project) as client:
        broken = {"body": ['{"error": "no room"}'], "status": 507}
        partial = odd.with_suffix(".tmp")
        partial.write_text(json.dumps({"stream": broken}))
        partial.rename(odd)
        _, err = client.communicate(timeout=PATIENCE)
    assert client.returncode == 10, err
    assert "requests failed" in err
    assert "507" in err
    assert kept(project).why
    assert _rounds(project) < 20


def test_a_server_that_dies_meanwhile_leaves_no_number_of_an_earlier_time(project: Project) -> None:
    project.fake(bench=LONG, fake=SLOW)
    assert project.run("up", "profile=fake").code == 0
    before = kept(project)
    assert before.figures()
    with measuring(project, "bench.rounds=9") as client:
        os.killpg(int(project.status()["pid"]), signal.SIGKILL)
        _, err = client.communicate(timeout=PATIENCE)
    assert client.returncode in (6, 7), err
    found = kept(project)
    assert (found.on.run, found.figures()) == (before.on.run, {})
    assert "the server is gone" in found.why


def test_what_cannot_be_asked_is_told_before_a_host_is_touched(project: Project) -> None:
    (project.folder / "mine.jsonl").write_text(f"{json.dumps(MINE[0])}\n{{}}\n")
    project.fake(bench=LADDER)
    done = project.run("up", "profile=fake")
    assert (done.code, "mine.jsonl:2: has neither" in done.err) == (2, True), done.err
    assert not (project.folder / "work").exists()


@pytest.mark.parametrize("words", [["bench.prompts=cod"], ["bench.load=guess"]])
def test_a_set_or_a_generator_that_is_not_there_is_told_with_the_nearest(project: Project, words: list[str]) -> None:
    project.fake()
    done = project.run("plan", "profile=fake", "--offline", *words)
    assert done.code == 2
    assert "there is no" in done.err
