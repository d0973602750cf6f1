"""llama.cpp: its own server from a binary, or through the xllamacpp package with the same flags."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from deploy import host
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
    _chat,
    _ports,
)
from deploy.engines._counts import count, part, word
from deploy.engines._flags import spelled, words
from deploy.engines._gauges import Gauges
from deploy.engines._llamacpp_explain import DIALECT, FATAL, explain
from deploy.engines._llamacpp_log import WORDS, marks, order, progress
from deploy.engines._ports import Port, Said
from deploy.engines._prometheus import sums
from deploy.engines._swap import never
from deploy.engines._written import Written
from deploy.errors import ConfigError
from deploy.text.words import RunPath, Word, path

DISTRIBUTION = "xllamacpp"
READY = re.compile(r"listening on http://")
READY_PATH = "/health"
INFO = ("/props",)
METRICS = "/metrics"
STEPS = "spec-draft-n-max"  # newer ones refuse `draft-max`
ELSEWHERE: tuple[str, ...] = ()
GAUGES = Gauges(
    path="/metrics",  # its predicted_tokens_seconds begins anew with each look; `totals` do not
    log={  # after each request
        "accept_length": re.compile(r"draft acceptance = .*mean len =\s+(?P<value>\d+\.\d+)"),
        "tokens_per_second": re.compile(r"\|\s+eval time = .*?(?P<value>\d+\.\d+) tokens per second"),
    },
    written=Written(
        re.compile(
            r"draft acceptance = [\d.]+ \(\s*(?P<accepted>\d+) accepted /\s*(?P<drafted>\d+) generated\), "
            r"mean len =\s+(?P<length>\d+\.\d+)"
        ),
        "draft acceptance",
    ),
    words=("llamacpp:tokens_predicted_total", "llamacpp:spec_decode_num_", "draft acceptance", " eval time ="),
)
STREAM: Mapping[str, Any] = MappingProxyType({})  # the last chunk has `timings` in any case
SECRETS: Mapping[str, str] = {}
PORT = 8080

SPECULATION = {"EAGLE3": "draft-eagle3", "STANDALONE": "draft-simple"}

ALIASES = spelled(
    {
        # of the flags that are set here
        "model": "m",
        "alias": "a",
        "n-gpu-layers": "gpu-layers ngl",
        "model-draft": "md spec-draft-model",
        "spec-draft-n-max": "draft draft-n draft-max",
        # with one dash, which `args` has no way to say
        "batch-size": "b",
        "cache-type-k": "ctk",
        "cache-type-v": "ctv",
        "cont-batching": "cb",
        "cpu-moe": "cmoe",
        "ctx-size": "c",
        "ctx-size-draft": "cd",
        "device": "dev",
        "device-draft": "devd",
        "flash-attn": "fa",
        "gpu-layers-draft": "ngld",
        "hf-file": "hff",
        "hf-repo": "hf hfr",
        "hf-token": "hft",
        "kv-unified": "kvu",
        "log-verbosity": "lv",
        "main-gpu": "mg",
        "mmproj": "mm",
        "n-cpu-moe": "ncmoe",
        "no-kv-offload": "nkvo",
        "override-tensor": "ot",
        "parallel": "np",
        "predict": "n",
        "seed": "s",
        "slot-prompt-similarity": "sps",
        "split-mode": "sm",
        "tensor-split": "ts",
        "threads": "t",
        "threads-batch": "tb",
        "threads-draft": "td",
        "timeout": "to",
        "ubatch-size": "ub",
        "verbose": "v",
    }
)
FIELDS = {
    "model": "model.path",
    "alias": "model.name",
    "port": "port",
    "model-draft": "draft.path",
    "spec-type": "speculative.algorithm",
    "spec-draft-n-max": "speculative.num_steps",
}
VALUES = {"spec-type": {type_: algorithm for algorithm, type_ in SPECULATION.items()}}
GPU_FLAGS: tuple[str, ...] = ()
swap = never("llama.cpp loads a draft at its start alone")

__all__ = ["DIALECT", "FATAL", "WORDS", "explain", "marks", "order", "progress"]


def command(request: Request) -> Command:
    """llama-server's flags; without a binary they go to our small launcher of the same server."""
    profile = request.profile
    flags: dict[str, Any] = {
        "host": "127.0.0.1",
        "port": profile.port,
        "model": path(profile.model.path),
        "alias": profile.model.name or profile.model.path,
        "metrics": True,
    }
    if profile.gpus:
        flags["n-gpu-layers"] = 999
    if profile.speculative and request.draft:
        flags |= {
            "model-draft": request.draft,
            "spec-type": _spec_type(profile.speculative.algorithm),
            "spec-draft-n-max": profile.speculative.num_steps,
        }
    flags_words = words(ALIASES, flags, profile.args)
    if profile.engine.binary:
        return Command((path(profile.engine.binary), *flags_words))
    launcher = "llama_server.py"
    return Command(
        (path(request.python), RunPath(launcher), *flags_words),
        env={"PYTHONUNBUFFERED": "1"},
        files={launcher: host.source("llama_server")},
    )


def called(argv: Sequence[str]) -> Called | None:
    """`llama-server`, or our small launcher of it under any interpreter."""
    if argv[0:1] and argv[0].rpartition("/")[2] == "llama-server":
        return Called({"binary": argv[0]}, 1)
    if argv[1:2] and argv[1].rpartition("/")[2] == "llama_server.py":
        return Called({"python": argv[0]}, 2)
    return None


def _spec_type(algorithm: str) -> str:
    if algorithm in SPECULATION:
        return SPECULATION[algorithm]
    raise ConfigError(
        f"llama.cpp has no speculative algorithm {algorithm!r}", remedy=f"known: {', '.join(SPECULATION)}"
    )


def ports(said: Said) -> tuple[Port, ...]:
    """It answers on one, and needs no other."""
    return _ports.listed(_ports.http(said))


def secret_argv(flags: Mapping[str, str]) -> tuple[Word, ...]:
    """llama-server reads its API key from a file and takes no other secret."""
    if set(flags) - {"api-key"}:
        raise ConfigError("llama.cpp takes only `api-key` as a secret flag", evidence=", ".join(flags))
    return ("--api-key-file", RunPath("secrets")) if flags else ()


def secret_file(flags: Mapping[str, str]) -> tuple[str, str]:
    """One key, one line."""
    return "secrets", "".join(f"{value}\n" for value in flags.values())


def chat(model: str, prompt: str, max_tokens: int) -> Question:
    """A chat request at temperature 0."""
    return _chat.question(model, prompt, max_tokens)


def loaded(answer: Mapping[str, Any]) -> Loaded:
    """`model_path`, as it was given; the draft is told nowhere."""
    return Loaded(word(answer.get("model_path")))


def measured(model: str, prompt: str, max_tokens: int) -> tuple[Question, ...]:
    """A chat request; every answer carries `timings`. No prompt cache, so that each run does the same work."""
    question = _chat.question(model, prompt, max_tokens)
    return (Question(question.path, {**question.body, "cache_prompt": False}),)


def wants_ids(version: str | None) -> bool:  # noqa: ARG001
    """Its chats tell all that it has to tell."""
    return False


def streamed(asked: Conversation) -> Streamed:
    """With `timings` in every chunk, whose `predicted_n` counts tokens; no prompt cache either."""
    more: dict[str, Any] = {"cache_prompt": False, "timings_per_token": True}
    if asked.fixed_length:
        more["ignore_eos"] = True
    return _chat.streamed(asked, ("timings", "predicted_n"), **more)


def counters(answer: Mapping[str, Any]) -> Counters | None:
    """From `timings`: a verify step yields its accepted drafts and one token of the target's own.

    So steps = generated - accepted. That is one too many where the answer ended with a whole step, since its first
    token comes from the prompt's own pass: the length is rather too small than too large.
    """
    timings = part(answer, "timings")
    generated = count(timings.get("predicted_n"))
    if generated is None:
        return None
    drafted, accepted = count(timings.get("draft_n")), count(timings.get("draft_n_accepted"))
    steps = None if accepted is None else count(generated - accepted)
    return Counters(generated, steps=steps, drafted=drafted, accepted=accepted)


def totals(metrics: str) -> Totals | None:
    """From llama.cpp's Prometheus counters; it does not count requests."""
    found = sums(metrics)
    generated = found.get("llamacpp:tokens_predicted")
    accepted = found.get("llamacpp:spec_decode_num_accepted_tokens")
    if generated is None and accepted is None:
        return None
    return Totals(
        generated=generated or 0,
        steps=found.get("llamacpp:spec_decode_num_drafts"),
        drafted=found.get("llamacpp:spec_decode_num_draft_tokens"),
        accepted=accepted,
    )
