"""Where a starting server is, from whole starts: real logs, and those of `tests/starts.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy import engines
from deploy.engines._phases import Startup
from tests.starts import (
    ARGS,
    BAR,
    DIST,
    HTTP,
    NEW,
    OLD,
    PREFILL,
    RANKS,
    READY,
    STARTS,
    SUM,
    W0,
    W1,
    captured,
    heard,
    said,
)

LOGS = Path(__file__).parent.parent / "fixtures" / "logs"


def read(name: str) -> str:
    with (LOGS / f"{name}.log").open(encoding="utf-8", newline="") as file:  # keeps the progress bars' returns
        return file.read()


@pytest.mark.parametrize(("version", "lines", "stages"), STARTS)
def test_a_start_goes_through_the_phases_of_its_version(version, lines, stages):
    startup, found = heard(map(said, lines), version=version)
    assert found == stages
    assert startup.whole


@pytest.mark.parametrize(("version", "lines", "stages"), STARTS)
def test_eight_ranks_that_speak_in_turn_are_one_server(version, lines, stages):
    own = {ARGS, BAR, HTTP, READY}  # of the launcher, and bars, which name no rank
    first = ("sglang is using nccl", "Capture draft", "max_total_num_tokens", "Prefill batch")  # tells it for all
    told = [
        said(text, rank)
        for text in lines
        for rank in ([""] if text in own else ["TP0"] if text.startswith(first) else RANKS)
    ]
    bars = [text.partition("] ")[2] if BAR in text else text for text in told]
    assert heard(bars, version=version)[1] == stages


REAL = [
    (
        "vllm-0.32.0-good",
        "starting|config|engine|rendezvous|target weights|draft weights|kv cache|scheduler|http|ready",
    ),
    (
        "sglang-0.5.23-good",
        "starting|rendezvous|target weights|draft weights|target kv cache|draft kv cache|scheduler|http|warm-up|ready",
    ),
    (
        "sglang-0.5.23-good-tp2",
        "starting|rendezvous|target weights|draft weights|target kv cache|draft kv cache|scheduler|http|warm-up|ready",
    ),
    ("llamacpp-good", "starting|target weights|draft weights|slots|http|ready"),
    ("llamacpp-good-verbose", "starting|target weights|warm-up|draft weights|slots|http|ready"),
]


@pytest.mark.parametrize(("name", "stages"), REAL)
def test_a_real_start_goes_through_its_phases_in_order(name, stages):
    startup, found = heard(read(name).split("\n"), name.partition("-")[0])
    assert found == stages.split("|")
    assert startup.whole


ENDED = [
    ("sglang-0.5.23-speculators", "starting", ()),
    ("sglang-0.5.23-missing-rank", "rendezvous", ()),
    ("sglang-0.5.23-nccl-port-taken", "rendezvous", ()),
    ("sglang-0.5.23-out-of-memory", "target weights", ()),
    ("sglang-0.5.23-stopped-loading-tp2", "target weights", ("TP1",)),
    ("sglang-0.5.23-wrong-fc-tp2", "draft weights", ()),
    ("sglang-0.5.23-truncated", "draft weights", ()),
    ("sglang-0.5.23-port-taken", "scheduler", ()),
    ("sglang-0.5.23-absolute-d2t", "warm-up", ()),
    ("sglang-0.5.23-killed-serving-tp2", "ready", ()),
    ("vllm-0.32.0-too-long", "config", ()),
    ("vllm-0.32.0-unknown-prefix", "draft weights", ()),
    ("llamacpp-truncated-model", "target weights", ()),
    ("llamacpp-truncated-draft", "draft weights", ()),
    ("llamacpp-port-taken", "starting", ()),
]


@pytest.mark.parametrize(("name", "stage", "behind"), ENDED)
def test_a_real_start_that_failed_stands_where_it_failed(name, stage, behind):
    startup, _ = heard(read(name).split("\n"), name.partition("-")[0])
    assert startup.standing is not None
    assert (str(startup.standing.stage), startup.standing.behind) == (stage, behind)


def test_what_is_repeated_or_comes_late_changes_nothing():
    startup, _ = heard(map(said, NEW), version="0.5.20")
    before = startup.standing
    for line in map(said, NEW):
        for mark in engines.load("sglang").marks(line):
            startup.hear(mark, 99.0)
    assert startup.standing == before


def test_a_second_capture_of_one_model_begins_it_again():
    lines = [*map(said, [ARGS, *DIST, W0, W1]), *map(said, captured("target prefill CUDA graph"))]
    lines.append(said("Capture target verify CUDA graph begin. backend=full"))
    startup, _ = heard([*lines, "Capturing batches (bs=8 avail_mem=7.31 GB):  4%|#  | 1/23 [00:12<00:15,  1.17s/it]"])
    assert startup.standing is not None
    assert (str(startup.standing.stage), startup.standing.done, startup.standing.total) == ("target graphs", 1, 23)


def test_a_last_state_of_a_bar_that_comes_late_is_not_of_the_draft():
    assert heard([*map(said, [ARGS, *DIST, W0, W1]), BAR], version="0.5.20")[1][-1] == "target weights"


def test_what_is_heard_from_its_middle_on_goes_on_from_there():
    begin = OLD.index(captured("cuda graph")[0])
    draft = OLD.index(W0, begin)
    assert heard(map(said, OLD[begin : draft + 1]), version="0.5.8")[1][-1] == "draft weights"
    assert heard(map(said, OLD[begin:]), version="0.5.8")[1] == [
        "starting", "target graphs", "draft weights", "draft kv cache", "draft graphs", "scheduler", "http", "warm-up",
        "ready",
    ]  # fmt: skip


def test_a_start_that_is_heard_from_its_middle_on_is_not_whole():
    assert not heard(map(said, NEW[6:]), version="0.5.20")[0].whole


def test_an_unknown_server_stands_nowhere():
    startup, stages = heard([said(W0)], "command")
    assert (startup.standing, stages, startup.whole) == (None, [], False)
    assert startup.seconds(9.0) == {}
    assert startup.left({"target weights": 9.0}, 9.0) is None


# ---- times


def test_each_stage_has_its_seconds_and_being_ready_takes_none():
    startup, _ = heard(map(said, [ARGS, DIST[0], DIST[2], W0, W1, SUM, HTTP, PREFILL, READY]))
    expected = {"starting": 2, "rendezvous": 2, "target weights": 2, "scheduler": 1, "http": 1, "warm-up": 1}
    assert startup.seconds(50.0) == expected


def weights(done: str = "") -> Startup:
    """A start that began to load at second 3."""
    bars = [BAR.replace("64/64", done)] if done else []
    return heard(map(said, [ARGS, DIST[0], W0, *bars]), version="0.5.20")[0]


USUAL = {"starting": 20.0, "target weights": 100.0, "draft weights": 10.0, "target graphs": 30.0, "unknown": 1000.0}
LEFT = [
    ("", 13.0, 90 + 40),  # it has loaded for 10 s of 100
    ("", 203.0, 0 + 40),  # longer than ever: what comes later still takes its time
    ("16/64", 23.0, 60 + 40),  # a quarter after 20 s
    ("16/64", 403.0, 1200 + 40),  # slower than the last time
    ("64/64", 23.0, 80 + 40),  # all are read, and nothing tells what is still done with them
]


@pytest.mark.parametrize(("done", "now", "left"), LEFT)
def test_the_time_left_is_what_the_later_stages_took_and_the_rest_of_this_one(done, now, left):
    assert weights(done).left(USUAL, now) == left


def test_without_an_earlier_start_nothing_tells_the_time_left():
    assert weights("16/64").left({}, 23.0) is None
