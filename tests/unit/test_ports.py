"""The ports that a server's command line makes it take, by engine and version; read from the engines' sources."""

from __future__ import annotations

from typing import Any

import pytest

from deploy import engines
from deploy.engines import _ports
from deploy.engines._ports import Said

EVENTS = '{"publisher": "zmq", "endpoint": "tcp://*:5557", "replay_endpoint": "tcp://*:5600"}'
ATTENTION = {"dp-size": "4", "enable-dp-attention": None}


def numbers(engine: str, flags: dict[str, Any], port: int = 30000, **said: Any) -> list[int]:
    words = {flag: () if value is None else (value,) for flag, value in flags.items()}
    return [found.number for found in engines.load(engine).ports(Said(words, port=port, **said))]


# (engine, its flags, the rest of what is said, its ports, and how they follow)
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any], list[int]]] = {
    "one node has its own, and a rendezvous that it finds free itself": ("sglang", {}, {}, [30000]),
    "a rendezvous that is said": ("sglang", {"nccl-port": "29700"}, {}, [30000, 29700]),
    "the head of two binds theirs": (
        "sglang",
        {"dist-init-addr": "192.0.2.1:31000", "nccl-port": "29700"},
        {"nodes": 2},
        [30000, 31000],
    ),
    "over IPv6": ("sglang", {"dist-init-addr": "[2001:db8::1]:31000"}, {"nodes": 2}, [30000, 31000]),
    "a follower binds none of it": ("sglang", {"dist-init-addr": "h:31000"}, {"nodes": 2, "rank": 1}, [30000]),
    "somebody else's rendezvous": (
        "sglang",
        {"dist-init-addr": "h:31000"},
        {"env": {"SGLANG_DISTRIBUTED_INIT_METHOD_OVERRIDE": "env://"}},
        [30000],
    ),
    "attention data parallelism, 0.5.8": ("sglang", ATTENTION, {"version": "0.5.8"}, [30000, *range(30233, 30239)]),
    "since 0.5.18 one more": ("sglang", ATTENTION, {"version": "0.5.18"}, [30000, *range(30233, 30240)]),
    "a version that nobody knows is a new one": ("sglang", ATTENTION, {}, [30000, *range(30233, 30240)]),
    "the newer spelling": ("sglang", {"attn-dp-size": "4"}, {"version": "0.5.23"}, [30000, *range(30233, 30240)]),
    "its ranks in Rust": (
        "sglang",
        {"attn-dp-size": "2"},
        {"env": {"SGLANG_RUST_SERVER": "1"}},
        [30000, *range(30233, 30242)],
    ),
    "a follower looks at them too": (
        "sglang",
        {**ATTENTION, "dist-init-addr": "h:31000"},
        {"nodes": 2, "rank": 1, "version": "0.5.8"},
        [30000, *range(31000, 31006)],
    ),
    "beyond the last port, below": (
        "sglang",
        {**ATTENTION, "dist-init-addr": "h:65533"},
        {"version": "0.5.23"},
        [30000, 65533, *range(65526, 65532)],
    ),
    "copies of the whole model use files": ("sglang", {"dp-size": "4"}, {}, [30000]),
    "one rank is no data parallelism": ("sglang", {"dp-size": "1", "enable-dp-attention": None}, {}, [30000]),
    "a prefill server": ("sglang", {"disaggregation-mode": "prefill"}, {}, [30000, 8998]),
    "at another port": (
        "sglang",
        {"disaggregation-mode": "prefill", "disaggregation-bootstrap-port": "9100"},
        {},
        [30000, 9100],
    ),
    "a decode server": ("sglang", {"disaggregation-mode": "decode"}, {}, [30000]),
    "a gate": ("sglang", {"gated-launch-port": "30900"}, {}, [30000, 30900]),
    "weights for others": (
        "sglang",
        {"remote-instance-weight-loader-start-seed-via-transfer-engine": None},
        {},
        [30000, 6789],
    ),
    "gRPC by a variable": ("sglang", {}, {"env": {"SGLANG_GRPC_PORT": "31500"}}, [30000, 31500]),
    "gRPC alone": ("sglang", {"smg-grpc-mode": None}, {}, [30000, 40000, 30001]),
    "events, one port for each rank": (
        "sglang",
        {"kv-events-config": EVENTS, **ATTENTION},
        {"version": "0.5.8"},
        [30000, *range(30233, 30239), *range(5557, 5561), *range(5600, 5604)],
    ),
    "events that connect to somebody": (
        "sglang",
        {"kv-events-config": '{"publisher": "zmq", "endpoint": "tcp://10.0.0.1:5557"}'},
        {},
        [30000],
    ),
    "what is no JSON": ("sglang", {"kv-events-config": "{"}, {}, [30000]),
    "vLLM alone": ("vllm", {}, {}, [30000]),
    "the head of two of vLLM": ("vllm", {"master-port": "31000"}, {"nodes": 2}, [30000, 31000]),
    "vLLM's own default": ("vllm", {}, {"nodes": 2}, [30000, 29501]),
    "vLLM's follower answers nothing": ("vllm", {"headless": None}, {"nodes": 2, "rank": 1}, []),
    "vLLM's engines on one node use files": ("vllm", {"data-parallel-size": "4"}, {}, [30000]),
    "vLLM's engines on two nodes": ("vllm", {"data-parallel-size": "4"}, {"nodes": 2}, [30000, 29501, 29550]),
    "vLLM's engines elsewhere": (
        "vllm",
        {"data-parallel-size": "4", "data-parallel-size-local": "2", "data-parallel-rpc-port": "31300"},
        {},
        [30000, 31300],
    ),
    "vLLM's KV transfer": (
        "vllm",
        {"kv-transfer-config": '{"kv_connector": "NixlConnector"}'},
        {"env": {"VLLM_NIXL_SIDE_CHANNEL_PORT": "5700"}},
        [30000, 5700],
    ),
    "vLLM's events": ("vllm", {"kv-events-config": '{"enable_kv_cache_events": true}'}, {}, [30000, 5557]),
    "llama.cpp": ("llamacpp", {"port": "30000"}, {}, [30000]),
    "an unknown server": ("command", {}, {}, [30000]),
}


@pytest.mark.parametrize("case", CASES)
def test_the_ports_of(case: str) -> None:
    engine, flags, said, expected = CASES[case]
    assert numbers(engine, flags, **said) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["python", "-m", "x", "--tp", "8", "--b=2"], {"tp-size": ("8",), "b": ("2",)}),
        (["--dist_init_addr", "h:1"], {"dist-init-addr": ("h:1",)}),
        (["--nccl-init-addr", "h:1"], {"dist-init-addr": ("h:1",)}),
        (["--x", "1", "2", "--x", "3"], {"x": ("3",)}),
        (["--on", "--n", "-1"], {"on": (), "n": ("-1",)}),
    ],
)
def test_flags_of_a_command_line(words: list[str], expected: dict[str, tuple[str, ...]]) -> None:
    assert _ports.flags(words, engines.load("sglang").ALIASES) == expected
