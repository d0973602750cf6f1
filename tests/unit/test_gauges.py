"""Accept length and speed of a server that serves, from logs and metrics as the engines write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy import engines
from deploy.engines import _gauges
from deploy.engines._gauges import Live
from deploy.status import standing

FIXTURES = Path(__file__).parents[1] / "fixtures"


def log(name: str) -> str:
    return (FIXTURES / "logs" / name).read_text()


def metrics(name: str) -> str:
    return (FIXTURES / "answers" / name).read_text()


def sglang(**values: tuple[str, float]) -> str:
    """Gauges as SGLang writes them, {name: (labels, value)}."""
    return "".join(
        f'# TYPE sglang:{name} gauge\nsglang:{name}{{engine_type="unified",{labels}model_name="m"}} {value}\n'
        for name, (labels, value) in values.items()
    )


RANKS = "".join(
    f'sglang:gen_throughput{{dp_rank="{rank}",tp_rank="{tp}"}} {value}\n'
    for rank, tp, value in ((0, 0, 10.0), (0, 1, 10.0), (1, 0, 5.5))
)
DECODE = "[2026-11-30 18:44:15{rank}] Decode batch, #token: 9, {told}gen throughput (token/s): {speed}, #queue\n"
NONE = ("NaN", "+Inf", "1.2.3", "1e999", "-1.0", "")
CASES = {
    "SGLang's log": ("sglang", "", log("sglang-0.5.23-good.log"), Live(3.85, 325.39)),
    "SGLang's log, two ranks": ("sglang", "", log("sglang-0.5.23-good-tp2.log"), Live(3.90, 15.64)),
    "its metrics come first": (
        "sglang",
        sglang(spec_accept_length=("", 2.5), gen_throughput=("", 0.0)),
        log("sglang-0.5.23-good.log"),
        Live(2.5, 0.0),
    ),
    "a gauge of nothing verified yet": ("sglang", sglang(spec_accept_length=("", 0.0)), "", Live(None, None)),
    "ranks of a server tell the same, servers of a group add up": ("sglang", RANKS, "", Live(None, 15.5)),
    "a log without a draft": ("sglang", "", DECODE.format(rank=" TP0", told="", speed="8.44"), Live(None, 8.44)),
    "a log of two data-parallel servers": (
        "sglang",
        "",
        "".join(
            DECODE.format(rank=f" DP{rank} TP{tp}", told=f"accept len: {length}, accept rate: 0.9, ", speed=speed)
            for rank, tp, length, speed in ((0, 0, "3.00", "1.00"), (1, 1, "2.00", "5.00"), (0, 0, "4.00", "7.00"))
        ),
        Live(3.0, 12.0),
    ),
    "the length of a block is another one": (
        "sglang",
        "",
        DECODE.format(rank="", told="block accept len: 9.99, ", speed="1.00"),
        Live(None, 1.0),
    ),
    "vLLM's log, whose last line is of an idle server": ("vllm", "", log("vllm-0.32.0-good.log"), Live(3.67, 0.0)),
    "vLLM's counters, where its log is silent": ("vllm", metrics("vllm-good.metrics"), "", Live(1 + 48 / 18, None)),
    "llama.cpp's log": ("llamacpp", "", log("llamacpp-good.log"), Live(3.96, 3106.17)),
    "llama.cpp's counters": ("llamacpp", metrics("llamacpp-good.metrics"), "", Live(1 + 29 / 10, None)),
    "llama.cpp without a draft": ("llamacpp", metrics("llamacpp-plain.metrics"), "", Live(None, None)),
    "a server that no engine knows": ("command", RANKS, log("sglang-0.5.23-good.log"), Live(None, None)),
    "numbers that are none": ("sglang", "".join(f"sglang:gen_throughput {value}\n" for value in NONE), "", Live()),
}


@pytest.mark.parametrize("case", CASES)
def test_what_a_server_tells_of_its_speed(case):
    name, told, written, expected = CASES[case]
    engine = engines.load(name)
    kept = (_kept(text, engine.GAUGES.words) for text in (told, written))  # as the program on the host keeps them
    found = standing.live(engine, *kept)
    assert found.accept_length == (expected.accept_length and pytest.approx(expected.accept_length))
    assert found.tokens_per_second == expected.tokens_per_second


def _kept(text: str, words: tuple[str, ...]) -> str:
    return "\n".join(line for line in text.splitlines() if any(word in line for word in words))


def test_gauges_of_nothing_are_nothing():
    assert _gauges.live(_gauges.Gauges(), "sglang:gen_throughput 1.0", "gen throughput (token/s): 1.00") == Live()
