"""SGLang, from 0.5.8 on."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from deploy.engines import (
    Called,
    Command,
    Loaded,
    Question,
    Request,
    _called,
    _chat,
)
from deploy.engines._counts import word
from deploy.engines._flags import spelled, words
from deploy.engines._gauges import Gauges
from deploy.engines._sglang_answers import STREAM, counters, measured, streamed, totals, wants_ids
from deploy.engines._sglang_explain import DIALECT, FATAL, explain
from deploy.engines._sglang_flags import ELSEWHERE
from deploy.engines._sglang_log import WORDS, marks, order, progress
from deploy.engines._sglang_ports import ports
from deploy.engines._sglang_swap import swap
from deploy.engines._written import Written
from deploy.text.words import RunPath, Word, path

DISTRIBUTION = "sglang"
READY = re.compile(r"The server is fired up and ready to roll!")
READY_PATH = "/health_generate"  # generates a token, which /health may be told not to do
INFO = ("/server_info", "/get_server_info")  # both in 0.5.8 to 0.5.23; the older name is deprecated since 0.5.12
METRICS = "/metrics"  # only with --enable-metrics
GAUGES = Gauges(
    path=METRICS,
    metrics={"accept_length": "sglang:spec_accept_length", "tokens_per_second": "sglang:gen_throughput"},
    # `Decode batch`, every --decode-log-interval steps: managers/scheduler_metrics_mixin.py in 0.5.8,
    # managers/scheduler_components/metrics_reporter.py in 0.5.23
    log={
        "accept_length": re.compile(r"(?:\bDP(?P<rank>\d+)\b.*)?(?<!block )accept len: (?P<value>\d+\.\d+)"),
        "tokens_per_second": re.compile(r"(?:\bDP(?P<rank>\d+)\b.*)?gen throughput \(token/s\): (?P<value>\d+\.\d+)"),
    },
    words=("sglang:spec_accept_length", "sglang:gen_throughput", "Decode batch"),
    written=Written(
        re.compile(
            r"Decode batch.*?#running-req: (?P<streams>\d+),.*?(?<!block )accept len: (?P<length>\d+\.\d+)"
            r"(?:, accept rate: (?P<rate>\d+\.\d+))?"
        ),
        "Decode batch",
        every=40,
        flag="decode-log-interval",
        tokens="speculative-num-draft-tokens",
        counts_first="spec_accept_length",  # completion_tokens / spec_verify_ct
    ),
)
STEPS = "speculative-num-steps"
SECRETS: Mapping[str, str] = {}
PORT = 30000

DIST_PORT_OFFSET = 1000  # rendezvous of several nodes: out of the range SGLang derives from --port

ENVIRONMENT = {
    "SPT_NOENV": "1",  # else setproctitle wipes /proc/PID/environ, which carries the run's id
    "SGLANG_CUDA_COREDUMP_BEFORE_CRASH": "0",  # else a crash holds the GPUs for another 65 s
}

# Of the flags that are set here; `tp`, `dp` and `pp` are prefixes that argparse takes, or calls ambiguous, by version.
ALIASES = spelled(
    {
        "model-path": "model",
        "tp-size": "tp tensor-parallel-size",
        "pp-size": "pp pipeline-parallel-size",
        "dp-size": "dp data-parallel-size",
        "ep-size": "ep expert-parallel-size",
        "dist-init-addr": "nccl-init-addr",
        "speculative-draft-model-path": "speculative-draft-model",
    }
)

SIZES = {"tp-size": "parallel.tp", "pp-size": "parallel.pp", "dp-size": "parallel.dp", "ep-size": "parallel.ep"}
FIELDS = {
    "model-path": "model.path",
    "served-model-name": "model.name",
    "port": "port",
    **SIZES,
    "nnodes": "nodes",
    "node-rank": "",
    "speculative-algorithm": "speculative.algorithm",
    "speculative-draft-model-path": "draft.path",
    "speculative-num-steps": "speculative.num_steps",
    "speculative-eagle-topk": "speculative.eagle_topk",
    "speculative-num-draft-tokens": "speculative.num_draft_tokens",
}
VALUES: Mapping[str, Mapping[str, str]] = {}
GPU_FLAGS = ("base-gpu-id", "gpu-id-step")

__all__ = [
    "DIALECT",
    "ELSEWHERE",
    "FATAL",
    "STREAM",
    "WORDS",
    "counters",
    "explain",
    "marks",
    "measured",
    "order",
    "ports",
    "progress",
    "streamed",
    "swap",
    "totals",
    "wants_ids",
]


def command(request: Request) -> Command:
    """Full flag names only: argparse takes prefixes, and a prefix that works today is ambiguous tomorrow."""
    profile = request.profile
    flags: dict[str, Any] = {
        "model-path": path(profile.model.path),
        "served-model-name": profile.model.name,
        "host": "127.0.0.1",
        "port": profile.port,
    }
    argv = (path(request.python), "-m", "sglang.launch_server")
    said = words(ALIASES, flags, _parallel(request), _speculative(request), profile.args)
    return Command((*argv, *said), env={**ENVIRONMENT, **_own_address(request)})


def called(argv: Sequence[str]) -> Called | None:
    """`python -m sglang.launch_server`, its file, or `sglang serve`, which takes the model as a word of its own too."""
    flags = _called.module(argv, "sglang.launch_server")
    if flags:
        return Called({"python": argv[0]}, flags)
    served = _called.script(argv, "sglang") or _called.module(argv, "sglang") or 0
    if argv[served : served + 1] == ["serve"] and served:
        alone = argv[served + 1 : served + 2]
        model = served + 1 if alone and not alone[0].startswith("-") else None
        return Called({"python": _called.interpreter(argv)}, served + 1, model)
    flags = _called.script(argv, "launch_server.py")
    if flags and argv[flags - 1].endswith("sglang/launch_server.py"):
        return Called({"python": _called.interpreter(argv)}, flags)
    return None


def _own_address(request: Request) -> dict[str, str]:
    """Several nodes must know their own: SGLang guesses it by a route to the outside, and where there is none, the
    group hangs without another word. A name that only ssh knows is left to the profile's env.
    """
    try:
        ipaddress.ip_address(request.address)
    except ValueError:
        return {}
    return {"SGLANG_HOST_IP": request.address} if request.profile.nodes > 1 else {}


def _parallel(request: Request) -> dict[str, Any]:
    parallel, nodes = request.profile.parallel, request.profile.nodes
    sizes = {flag: getattr(parallel, key.removeprefix("parallel.")) for flag, key in SIZES.items()}
    flags: dict[str, Any] = {flag: size for flag, size in sizes.items() if size > 1}
    if nodes > 1:
        flags |= {
            "nnodes": nodes,
            "node-rank": request.rank,
            "dist-init-addr": f"{request.head}:{request.profile.port + DIST_PORT_OFFSET}",
        }
    return flags


def _speculative(request: Request) -> dict[str, Any]:
    speculative = request.profile.speculative
    if not speculative:
        return {}
    return {
        "speculative-algorithm": speculative.algorithm,
        "speculative-draft-model-path": request.draft,
        "speculative-num-steps": speculative.num_steps,
        "speculative-eagle-topk": speculative.eagle_topk,
        "speculative-num-draft-tokens": speculative.num_draft_tokens or speculative.num_steps + 1,
    }


def secret_argv(flags: Mapping[str, str]) -> tuple[Word, ...]:
    """SGLang reads any flag from its --config file as well."""
    return ("--config", RunPath("secrets.yaml")) if flags else ()


def secret_file(flags: Mapping[str, str]) -> tuple[str, str]:
    """JSON strings are YAML strings."""
    return "secrets.yaml", "".join(f"{flag}: {json.dumps(value)}\n" for flag, value in flags.items())


def chat(model: str, prompt: str, max_tokens: int) -> Question:
    """A chat request at temperature 0."""
    return _chat.question(model, prompt, max_tokens)


def loaded(answer: Mapping[str, Any]) -> Loaded:
    """From its resolved arguments (`build_server_info`, srt/utils/common.py). Without a draft of its own, an algorithm
    that drafts by the target names the target here.
    """
    return Loaded(
        word(answer.get("model_path")), word(answer.get("speculative_draft_model_path")), word(answer.get("version"))
    )
