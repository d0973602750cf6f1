"""What a start says of itself while its log is heard, and what is kept of it on the host for the next one."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from deploy import plan
from deploy.deployment.state import Machine, Place
from deploy.events import Event
from deploy.inventory import Host
from deploy.locking import lease
from deploy.plan import Node
from deploy.profile import Profile
from deploy.remote import Remote
from deploy.server import timings
from deploy.server.loading import Clock, Loading
from deploy.transport.local import LocalTransport

# (written by the log's own clock, heard) of each line, and its time by ours; the first is heard at 100
CLOCKS = [
    ("lines that come one by one", [(1000, 100.6), (1001, 101.2), (1001, 101.9)], [100.6, 101.2, 101.9]),
    ("a log that was there already", [(1000, 100), (1060, 100), (1200, 100), (None, 100)], [100, 160, 300, 300]),
    ("and goes on", [(1000, 100), (1200, 100), (1201, 101.3), (None, 140)], [100, 300, 301.3, 340]),
    ("bars without a clock", [(None, 100), (None, 130.5)], [100, 130.5]),
    ("lines that come late, all at once", [(1000, 100), (1010, 140), (1030, 140)], [100, 110, 130]),
    ("a clock that was set back", [(1000, 100), (400, 130), (402, 132)], [100, 130, 132]),
]


@pytest.mark.parametrize(("lines", "times"), [case[1:] for case in CLOCKS], ids=[case[0] for case in CLOCKS])
def test_a_line_has_the_time_at_which_it_was_written(lines, times):
    clock = Clock(100.0)
    assert [clock.at(written, heard) for written, heard in lines] == times


@pytest.fixture
def here(tmp_path: Path) -> Host:
    return Host.model_validate({"name": "here", "transport": "local", "lock": str(tmp_path / "lock")})


@pytest.fixture
def node(here: Host) -> Node:
    profile = {"name": "kimi", "engine": "sglang", "hosts": "here", "model": "/srv/m"}
    return plan.make({here: Profile.model_validate(profile)}, None, None).nodes[0]


@pytest.fixture
def said() -> list[Event]:
    return []


@pytest.fixture
def remote(tmp_path: Path, here: Host, said: list[Event]) -> Iterator[Remote]:
    made = Remote(here, LocalTransport("here"), said.append, threading.Event())
    work = f"{tmp_path}/work"
    made.place = Place(Machine("id", "here", "me", "/home/me", work, f"{work}/id", {}), "kimi", "20261129-3")
    Path(made.place.folder).mkdir(parents=True)
    with lease.take(here, made.transport, "test") as made.lease:
        yield made


def begun(second: int, message: str, ranks: str = "") -> str:
    return f"[2026-11-29 20:{second // 60:02d}:{second % 60:02d}{ranks}] {message}"


START = [
    begun(0, "server_args={'model_path': '/srv/m'}"),
    begun(10, "Init parallel begin."),
    begun(14, "Init parallel ends. elapsed=4 s"),
    begun(14, "Load weight begin. avail mem=93.46 GB"),
    "Loading safetensors checkpoint shards:  45% Completed | 29/64 [01:10<01:25,  2.44s/it]",
    begun(114, "Load weight end. elapsed=100 s, type=LlamaForCausalLM, avail mem=20.46 GB, mem usage=73.00 GB."),
    begun(114, "Capture target decode CUDA graph begin. backend=full"),
    begun(174, "max_total_num_tokens=20000, chunked_prefill_size=4096, max_running_requests=48"),
    begun(176, "INFO:     Uvicorn running on http://127.0.0.1:8000 (Press CTRL+C to quit)"),
    begun(186, "Prefill batch, #new-seq: 1, #new-token: 10"),
    begun(206, "The server is fired up and ready to roll!"),
]
TOOK = {"starting": 10, "rendezvous": 4, "target weights": 100, "target graphs": 60, "scheduler": 2, "http": 10}


def kept(remote: Remote, run: str, seconds: object, verdict: object = None, of: object = None) -> None:
    """An earlier run, as a host has it."""
    folder = Path(remote.place.runs) / run
    folder.mkdir()
    (folder / "phases.json").write_text(json.dumps({"of": of, "seconds": seconds}))
    (folder / "verdict.json").write_text(json.dumps({"holds": True} if verdict is None else verdict))


def test_a_start_tells_its_phases_and_keeps_their_times_on_the_host(node, remote, said):
    loading = Loading(node, remote)
    loading.hear([*["noise"] * 100, *START])
    assert loading.finish() == " (target weights 100 s, target graphs 60 s, warm-up 20 s)"
    facts = [event.facts for event in said if "phase" in event.facts]
    stages = [(told.get("component", ""), told["phase"]) for told in facts]
    assert list(dict.fromkeys(stages)) == [
        ("", "starting"), ("", "rendezvous"), ("target", "weights"), ("target", "graphs"),
        ("", "scheduler"), ("", "http"), ("", "warm-up"), ("", "ready"),
    ]  # fmt: skip
    bar = next(told for told in facts if told.get("done"))
    assert (bar["done"], bar["total"], bar.get("left")) == (29, 64, None)
    phases = said[-1].facts["phases"]
    assert phases == {**TOOK, "warm-up": 20, "starting": pytest.approx(10, abs=5)}  # it began before its first line
    assert json.loads((Path(remote.place.folder) / "phases.json").read_text())["seconds"] == phases
    assert len([event for event in said if event.facts.get("log") == "noise"]) < 20, "what nobody could read"


def test_the_time_left_comes_from_earlier_good_starts_that_are_alike(node, remote, said):
    first = Loading(node, remote)
    first.hear(START)
    first.finish()
    of = json.loads((Path(remote.place.folder) / "phases.json").read_text())["of"]
    kept(remote, "20261129-1", {**TOOK, "target weights": 50}, of=of)
    kept(remote, "20261129-2", {**TOOK, "target weights": 70}, of=of)
    kept(remote, "20261129-4", {**TOOK, "target weights": 9000}, {"holds": False}, of)
    for number in range(timings.MOST):
        kept(remote, f"20261129-5{number}", {**TOOK, "target weights": 9000}, of={**of, "model": "/srv/other"})
        kept(remote, f"20261128-{number}", {**TOOK, "target weights": 50 + 20 * (number > 3)}, of=of)
    kept(remote, "20261129-6", [], of=of)
    kept(remote, "20261127-1", {**TOOK, "target weights": 9000}, of=of)
    (Path(remote.place.runs) / "20261129-7").mkdir()
    earlier = timings.read(node, remote)
    assert (earlier.usual["target weights"], earlier.kept) == (60, True)

    said.clear()
    remote.place = replace(remote.place, run="20261129-8")
    Loading(node, remote).hear(START[:5])
    left = [event.facts.get("left") for event in said if "phase" in event.facts]
    assert left[0] == pytest.approx(sum(TOOK.values()) - 40, abs=5)
    assert left[-1] == 60 + 60 + 2 + 10


def test_a_draft_that_comes_into_a_running_server_has_no_start(node, remote, said):
    """The log tells of the start of the run that launched it."""
    remote.place = replace(remote.place, swaps=True)
    loading = Loading(node, remote)
    loading.hear(START)
    loading.still()
    assert (loading.finish(), said) == ("", [])
    assert not (Path(remote.place.folder) / "phases.json").exists()


def test_what_nobody_could_read_is_heard_all_the_same(node, remote, said):
    loading = Loading(node, remote)
    loading.hear([*START, *["noise"] * 100])
    assert "target weights 100 s" in loading.finish()


ODD = [{"a": "x"}, {"a": float("nan")}, {"a": -1}, {"a": 1e9}, {"a": True}, [], None, "x", 3]


@pytest.mark.parametrize("start", ODD)
def test_what_is_no_time_is_passed_over(start):
    assert timings.usual([start]) in ({}, {"a": 1.0})
    assert timings.usual([start, {"a": 3.0}, {"a": 5.0}])["a"] in (4.0, 3.0)


def test_a_host_that_cannot_be_asked_costs_the_estimate_alone(node, remote, said):
    remote.interpreter = ("/nowhere/python3",)
    loading = Loading(node, remote)
    loading.hear(START)
    assert "target weights 100 s" in loading.finish()
    assert [event for event in said if event.kind == "failed"] == []


@pytest.mark.parametrize("lines", [START[4:], ["nothing that is known"]])
def test_what_was_not_heard_from_its_beginning_is_not_kept(node, remote, said, lines):
    loading = Loading(node, remote)
    loading.hear(lines)
    assert loading.finish() == ""
    assert not (Path(remote.place.folder) / "phases.json").exists()


def test_a_rank_that_is_ahead_is_no_news_of_the_server(node, remote, said):
    lines = [begun(0, "Load weight begin. avail mem=93.46 GB", f" TP{rank}") for rank in (0, 1)]
    lines += [begun(9, "Capture target decode CUDA graph begin. backend=full", " TP0")]
    loading = Loading(node, remote)
    loading.hear(lines)
    assert (said[-1].text, said[-1].facts["phase"], said[-1].facts["behind"]) == ("", "weights", ["TP1"])
    assert re.fullmatch(r"target weights for \d+ s \(behind: TP1\)", loading.where)


def test_silence_is_told_now_and_then(node, remote, said, monkeypatch):
    loading = Loading(node, remote)
    loading.hear(START[:4])
    said.clear()
    loading.still()
    assert said == []
    monkeypatch.setattr("deploy.server.loading.AGAIN", 0.0)
    loading.still("nvcc is at work")
    assert (said[-1].text, said[-1].facts["phase"]) == ("nvcc is at work", "weights")
    assert "elapsed" in said[-1].facts
