"""Starts of servers as their logs tell them: of old versions and of many ranks, put together from the lines that the
versions' sources write (0.5.8: model_runner.py, eagle_worker.py; 0.5.18: bootstrap.py, cuda_graph_setup.py,
eagle_worker_v2.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from deploy import engines
from deploy.engines._phases import Startup


def heard(lines: Iterable[str], engine: str = "sglang", version: str | None = None) -> tuple[Startup, list[str]]:
    """A start as its lines tell it, one a second, and the stages it went through."""
    server = engines.load(engine)
    startup = Startup(server.order(version), 0.0)
    stages = [str(startup.standing.stage)] if startup.standing else []
    for second, line in enumerate(lines, start=1):
        for mark in server.marks(line):
            startup.hear(mark, float(second))
        if startup.standing and str(startup.standing.stage) != stages[-1]:
            stages.append(str(startup.standing.stage))
    return startup, stages


def said(message: str, ranks: str = "") -> str:
    return f"[2026-11-29 20:31:30{ranks and ' '}{ranks}] {message}"


ARGS = "server_args={'model_path': '/srv/m'}"
DIST = [
    "Init torch distributed begin.",
    "sglang is using nccl==2.27.7",
    "Init torch distributed ends. mem usage=0.84 GB",
]
W0 = "Load weight begin. avail mem=93.46 GB"
BAR = "Loading safetensors checkpoint shards: 100% Completed | 64/64 [01:10<00:00,  2.44s/it]"
W1 = "Load weight end. elapsed=71.3 s, type=KimiK25ForConditionalGeneration, avail mem=20.46 GB, mem usage=73 GB."
D1 = "Load weight end. elapsed=1.31 s, type=LlamaForCausalLMEagle3, dtype=x, avail mem=18.1 GB, mem usage=2.36 GB."
KV = ["KV Cache is allocated. #tokens: 281984, KV size: 9.44 GB", "Memory pool end. avail mem=8.42 GB"]
SUM = "max_total_num_tokens=281984, chunked_prefill_size=8192, max_running_requests=48"
HTTP = "INFO:     Uvicorn running on http://127.0.0.1:8000 (Press CTRL+C to quit)"
PREFILL = "Prefill batch, #new-seq: 1, #new-token: 10, #cached-token: 0"
READY = "The server is fired up and ready to roll!"


def captured(*names: str) -> list[str]:
    return [
        text
        for name in names
        for text in (f"Capture {name} begin. avail mem=8 GB", f"Capture {name} end. Time elapsed: 9.2 s.")
    ]


OLD = [ARGS, *DIST, W0, BAR, W1, *KV, *captured("cuda graph"), *DIST, W0, BAR, D1, *KV]
OLD += [*captured("draft cuda graph", "draft extend cuda graph"), SUM, HTTP, PREFILL, READY, PREFILL]
NEW = [ARGS, *DIST, "Gated launch waiting for activation. rank=0", "Gated launch activated. elapsed=2 s"]
NEW += [W0, BAR, W1, "Memory baseline taken. mem usage=0.84 GB", W0, BAR, D1, *KV, *KV]
NEW += [*captured("target prefill CUDA graph", "target verify CUDA graph"), "Registering 1320 cuda graph addresses"]
NEW += [*captured("draft decode CUDA graph", "draft extend CUDA graph"), SUM, HTTP, PREFILL, READY, PREFILL]
OVERLAP = [ARGS, *DIST, W0, W0, *KV, *KV, *captured("target verify CUDA graph", "draft decode CUDA graph")]
OVERLAP += ["Load weight end. Committed real weights after CUDA graph capture in 41.20 s", SUM, HTTP, PREFILL, READY]
STANDALONE = [ARGS, *DIST, W0, W1, W0, W1, *KV, *KV, SUM, HTTP, PREFILL, READY]  # both models are of one class
NO_DRAFT = [ARGS, *DIST, W0, BAR, W1, *KV, *captured("target decode CUDA graph"), SUM, HTTP, PREFILL, READY]

FIRST = ["starting", "rendezvous"]
LAST = ["scheduler", "http", "warm-up", "ready"]
OLD_STAGES = ["target weights", "target kv cache", "target graphs", "draft weights", "draft kv cache", "draft graphs"]
CACHES = ["target kv cache", "draft kv cache"]
STARTS = [
    ("0.5.8", OLD, [*FIRST, *OLD_STAGES, *LAST]),
    ("0.5.13.post1", OLD, [*FIRST, *OLD_STAGES, *LAST]),
    (
        "0.5.20",
        NEW,
        [*FIRST, "gate", "target weights", "draft weights", *CACHES, "target graphs", "draft graphs", *LAST],
    ),
    ("0.5.14", NO_DRAFT, [*FIRST, "target weights", "target kv cache", "target graphs", *LAST]),
    ("0.5.8", NO_DRAFT, [*FIRST, "target weights", "target kv cache", "target graphs", *LAST]),
    ("0.5.23", STANDALONE, [*FIRST, "target weights", "draft weights", *CACHES, *LAST]),
    (
        "0.5.23",
        OVERLAP,
        [*FIRST, "target weights", "draft weights", *CACHES, "target graphs", "draft graphs", "commit", *LAST],
    ),
]

RANKS = [f"TP{number}" for number in range(8)]
