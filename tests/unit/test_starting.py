"""What `deploy logs --phase` shows, from the lines that a host sends."""

from __future__ import annotations

import pytest

from deploy import engines
from deploy.logs.starting import Start, Starts


def at(second: int, message: str) -> str:
    return f"[2026-11-29 20:{second // 60:02d}:{second % 60:02d}] {message}"


LINES = [
    at(0, "server_args={'model_path': '/srv/m'}"),
    at(20, "Init parallel begin."),
    at(22, "Load weight begin. avail mem=93.46 GB"),
    "Loading safetensors checkpoint shards:  45% Completed | 29/64 [01:10<01:25,  2.44s/it]",
    at(82, "Capture target decode CUDA graph begin. backend=full"),
    *[f"Capturing batches (bs=8 avail_mem=7.31 GB):  {n}%|#  | {n}/100 [00:12<00:15,  1.17s/it]" for n in range(50)],
]
READY = [at(112, "The server is fired up and ready to roll!"), at(900, "Prefill batch, #new-seq: 1")]


def starts(lines: list[str], begin: int = 0) -> tuple[Start, list[str]]:
    read = Starts(engines.load("sglang"), "0.5.23")
    told = read.lines([f"\x1d{begin} /srv/kimi/runs/20261129-1", *lines], 7.0)
    assert read.start is not None
    return read.start, told


def test_who_follows_sees_each_stage_once_and_the_present_at_the_end():
    _, told = starts([*LINES, "\x1e30.0"])
    assert told == [
        "run 20261129-1",
        "   0.0s  starting: arguments accepted",
        "  20.0s  rendezvous: joining the other ranks",
        "  22.0s  target weights: loading, 93.46 GB free",
        "  1m22s  target graphs: capturing target decode graphs",
        "  1m52s  target graphs: 49 of 100 batch sizes  49%  for 30s",
    ]


def test_a_start_is_a_table_of_its_stages():
    start, _ = starts([*LINES, "\x1e30.0"])
    assert start.rows(7.0) == [
        "starting          20.0s",
        "rendezvous         2.0s",
        "target weights    1m00s",
        "target graphs     30.0s  target graphs: 49 of 100 batch sizes  49%",
    ]
    seconds = {"starting": 20, "rendezvous": 2, "target weights": 60, "target graphs": 30}
    counted = {"phase": "graphs", "component": "target", "done": 49, "total": 100}
    assert start.document(7.0) == {"cut": False, "ready": False, "seconds": seconds, **counted}


def test_the_start_of_a_dead_server_is_over_with_its_log():
    read = Starts(engines.load("sglang"), "0.5.23", alive=False)
    assert len(read.lines(["\x1d0 /runs/1", *LINES, "\x1e86400.0"], 7.0)) == 5
    assert read.start is not None
    assert read.start.document(99.0)["seconds"]["target graphs"] == 0
    assert read.start.rows(99.0)[-1] == "target graphs      0.0s  target graphs: 49 of 100 batch sizes  49%"


def test_what_comes_after_it_was_ready_is_of_no_start():
    start, _ = starts([*LINES, *READY, "\x1e5000.0"])
    assert start.over
    assert start.rows(7.0)[-2:] == ["target graphs     30.0s", "ready"]


def test_the_next_run_begins_anew_and_at_once():
    read = Starts(engines.load("sglang"), "0.5.23")
    read.lines(["\x1d0 /runs/1", *LINES, *READY, "\x1e9.0"], 7.0)
    assert read.lines(["\x1d0 /runs/2", *LINES[:1]], 9.5) == ["run 2", "   0.0s  starting: arguments accepted"]
    assert read.lines([at(1, "Init parallel begin.")], 10.0) == ["   0.5s  rendezvous: joining the other ranks"]


CUT = [
    (LINES[4:], 1000, ["the log of its start is cut off; `log.cap` says how much is kept"]),
    (READY[1:], 1000, ["the log of its start is cut off; `log.cap` says how much is kept"]),
    ([], 1000, ["the log of its start is cut off; `log.cap` says how much is kept"]),
]


@pytest.mark.parametrize(("lines", "begin", "rows"), CUT)
def test_of_a_log_whose_beginning_is_cut_off_no_phase_is_told(lines, begin, rows):
    start, _ = starts([*lines, "\x1e1.0"], begin)
    assert start.rows(7.0) == rows
    assert start.document(7.0) == {"cut": True, "ready": False, "seconds": {}}


def test_a_log_that_says_nothing_yet_is_a_server_that_starts():
    start, told = starts(["\x1e12.0"])
    assert told == ["run 20261129-1"]
    assert start.rows(7.0) == ["starting    12.0s  starting"]
