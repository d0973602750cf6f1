"""vLLM, its V1 engine: from 0.11 on."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from deploy.engines import (
    Called,
    Command,
    Conversation,
    Counters,
    Loaded,
    Question,
    Request,
    Streamed,
    Totals,
    _called,
    _chat,
)
from deploy.engines._counts import count, part, word
from deploy.engines._flags import spelled, words
from deploy.engines._gauges import Gauges
from deploy.engines._prometheus import sums
from deploy.engines._swap import never
from deploy.engines._vllm_explain import DIALECT, FATAL, explain
from deploy.engines._vllm_flags import ELSEWHERE
from deploy.engines._vllm_log import WORDS, marks, order, progress
from deploy.engines._vllm_ports import ports
from deploy.engines._written import Written
from deploy.errors import ConfigError
from deploy.text.words import Word, path

DISTRIBUTION = "vllm"
READY = re.compile(r"Application startup complete\.")
READY_PATH = "/health"
INFO = ("/v1/models",)  # its /server_info is for developers alone (VLLM_SERVER_DEV_MODE), and tells its configuration
METRICS = "/metrics"
PORT = 8000
GAUGES = Gauges(
    path="/metrics",  # has counters alone, of which `totals` are made
    # vllm/v1/metrics/loggers.py and vllm/v1/spec_decode/metrics.py in 0.32.0, every 10 s while it works
    log={
        "accept_length": re.compile(r"Mean acceptance length: (?P<value>\d+\.\d+)"),
        "tokens_per_second": re.compile(
            r"Engine (?P<rank>\d+): .*Avg generation throughput: (?P<value>\d+\.\d+) tokens/s"
        ),
    },
    words=("vllm:spec_decode_", "vllm:generation_tokens", "Mean acceptance length", "Avg generation throughput"),
    written=Written(
        re.compile(
            r"Mean acceptance length: (?P<length>\d+\.\d+),.*?Accepted: (?P<accepted>\d+) tokens, "
            r"Drafted: (?P<drafted>\d+) tokens"
        ),
        "Mean acceptance length",
    ),
)
STEPS = "speculative-config.num_speculative_tokens"
STREAM: Mapping[str, Any] = MappingProxyType({})
SECRETS: Mapping[str, str] = {"api-key": "VLLM_API_KEY"}  # its --config file would do as well, but it logs its flags

DIST_PORT_OFFSET = 1000  # rendezvous of several nodes: away from --port

ENVIRONMENT = {"SPT_NOENV": "1"}  # else setproctitle wipes /proc/PID/environ, which carries the run's id

METHODS = {
    "EAGLE3": "eagle3",
    "EAGLE": "eagle",
    "STANDALONE": "draft_model",
    "NEXTN": "mtp",
    "NGRAM": "ngram",
}

ALIASES = spelled(  # of the flags that are set here
    {
        "tensor-parallel-size": "tp",
        "pipeline-parallel-size": "pp",
        "data-parallel-size": "dp",
        "enable-expert-parallel": "ep",
        "node-rank": "r",
        "speculative-config.method": "spec-method",
        "speculative-config.num_speculative_tokens": "spec-tokens",
    }
)
FIELDS = {
    "model": "model.path",  # a word of its own, too
    "served-model-name": "model.name",
    "port": "port",
    "tensor-parallel-size": "parallel.tp",
    "pipeline-parallel-size": "parallel.pp",
    "data-parallel-size": "parallel.dp",
    "nnodes": "nodes",
    "node-rank": "",
    "headless": "",
    "speculative-config.method": "speculative.algorithm",
    "speculative-config.model": "draft.path",
    STEPS: "speculative.num_steps",
}
VALUES = {"speculative-config.method": {method: algorithm for algorithm, method in METHODS.items()}}
GPU_FLAGS: tuple[str, ...] = ()
swap = never("vLLM takes new weights from a trainer (--weight-transfer-config), none from files beside a server")

__all__ = ["DIALECT", "ELSEWHERE", "FATAL", "WORDS", "explain", "marks", "order", "ports", "progress"]


def command(request: Request) -> Command:
    """`vllm serve`, through the interpreter. The parts of --speculative-config are flags of their own, with a dot:
    only so can the draft's path be a word that the host completes.
    """
    profile = request.profile
    flags: dict[str, Any] = {
        "served-model-name": profile.model.name or profile.model.path,
        "host": "127.0.0.1",
        "port": profile.port,
    }
    argv = (path(request.python), "-m", "vllm.entrypoints.cli.main", "serve", path(profile.model.path))
    said = words(ALIASES, flags, _parallel(request), _speculative(request), profile.args)
    return Command((*argv, *said), env={**ENVIRONMENT, **_own_address(request)})


def called(argv: Sequence[str]) -> Called | None:
    """`vllm serve`, as a program or as a module, with the model as a word of its own; or the older api_server."""
    flags = _called.module(argv, "vllm.entrypoints.openai.api_server")
    if flags:
        return Called({"python": argv[0]}, flags)
    served = _called.script(argv, "vllm") or _called.module(argv, "vllm", "vllm.entrypoints.cli.main") or 0
    if not served or argv[served : served + 1] != ["serve"]:
        return None
    alone = argv[served + 1 : served + 2]
    model = served + 1 if alone and not alone[0].startswith("-") else None
    return Called({"python": _called.interpreter(argv)}, served + 1, model)


def _own_address(request: Request) -> dict[str, str]:
    """Several nodes must know their own: vLLM guesses it by a route to the outside, which a host may lack."""
    try:
        ipaddress.ip_address(request.address)
    except ValueError:
        return {}
    return {"VLLM_HOST_IP": request.address} if request.profile.nodes > 1 else {}


def _parallel(request: Request) -> dict[str, Any]:
    parallel, nodes = request.profile.parallel, request.profile.nodes
    sizes = {
        "tensor-parallel-size": parallel.tp,
        "pipeline-parallel-size": parallel.pp,
        "data-parallel-size": parallel.dp,
    }
    flags: dict[str, Any] = {name: size for name, size in sizes.items() if size > 1}
    if parallel.ep > 1:
        flags["enable-expert-parallel"] = True  # over all GPUs; consistency.py sees that ep says so
    if nodes > 1:
        flags |= {
            "nnodes": nodes,
            "node-rank": request.rank,
            "master-addr": request.head,
            "master-port": request.profile.port + DIST_PORT_OFFSET,
            "headless": request.rank > 0,
        }
    return flags


def _speculative(request: Request) -> dict[str, Any]:
    speculative = request.profile.speculative
    if not speculative:
        return {}
    if speculative.algorithm not in METHODS:
        raise ConfigError(
            f"vLLM has no speculative algorithm {speculative.algorithm!r}", remedy=f"known: {', '.join(METHODS)}"
        )
    return {
        "speculative-config.method": METHODS[speculative.algorithm],
        "speculative-config.model": request.draft,
        STEPS: speculative.num_steps,
    }


def secret_argv(flags: Mapping[str, str]) -> tuple[Word, ...]:
    """Its API key goes by the environment (`SECRETS`); what else is secret has variables too."""
    if flags:
        raise ConfigError(
            "vLLM takes only `api-key` as a secret flag",
            evidence=", ".join(flags),
            remedy="give it as environment: secrets: [HF_TOKEN]",
        )
    return ()


def secret_file(flags: Mapping[str, str]) -> tuple[str, str]:
    """Never asked for, since `secret_argv` refuses."""
    raise NotImplementedError(flags)


def chat(model: str, prompt: str, max_tokens: int) -> Question:
    """A chat request at temperature 0."""
    return _chat.question(model, prompt, max_tokens)


def loaded(answer: Mapping[str, Any]) -> Loaded:
    """The `root` of the first entry, which is the model; adapters come after it (entrypoints/openai/models/serving.py).
    The draft is told nowhere.
    """
    entries = answer.get("data")
    first = entries[0] if isinstance(entries, list) and entries and isinstance(entries[0], dict) else {}
    return Loaded(word(first.get("root")))


def measured(model: str, prompt: str, max_tokens: int) -> tuple[Question, ...]:
    """The same: whether the answer carries counters is said at the start, by --per-request-spec-decode-metrics."""
    return (_chat.question(model, prompt, max_tokens),)


def wants_ids(version: str | None) -> bool:  # noqa: ARG001
    """Its chats tell all that it has to tell."""
    return False


def streamed(asked: Conversation) -> Streamed:
    """With its usage in every chunk (entrypoints/openai/engine/protocol.py: StreamOptions)."""
    more: dict[str, Any] = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    if asked.fixed_length:
        more["ignore_eos"] = True
    if asked.salt:
        more["cache_salt"] = asked.salt
    return _chat.streamed(asked, ("usage", "completion_tokens"), **more)


def counters(answer: Mapping[str, Any]) -> Counters | None:
    """Tokens, and `metrics.speculative_decoding` where the server was told to give it."""
    generated = count(part(answer, "usage").get("completion_tokens"))
    if generated is None:
        return None
    told = part(part(answer, "metrics"), "speculative_decoding")
    return Counters(
        generated,
        steps=count(told.get("num_spec_steps")),
        drafted=count(told.get("num_draft_tokens")),
        accepted=count(told.get("num_accepted_draft_tokens")),
    )


def totals(metrics: str) -> Totals | None:
    """From its Prometheus counters, summed over engines (data parallel) and over how requests ended."""
    found = sums(metrics)
    generated = found.get("vllm:generation_tokens")
    accepted = found.get("vllm:spec_decode_num_accepted_tokens")
    if generated is None and accepted is None:
        return None
    return Totals(
        generated=generated or 0,
        steps=found.get("vllm:spec_decode_num_drafts"),
        drafted=found.get("vllm:spec_decode_num_draft_tokens"),
        accepted=accepted,
        requests=found.get("vllm:request_success"),
    )
