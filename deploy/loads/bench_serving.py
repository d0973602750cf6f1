"""The engine's own bench client, in its own environment on the host: `sglang.bench_serving`, `vllm bench serve`.

It tells no acceptance, and the time of chunks rather than tokens; it takes ten seconds and more to start, which are not
measured.
"""

from __future__ import annotations

import json
import math
import re
import secrets
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from deploy.engines import Counters
from deploy.engines._counts import count
from deploy.errors import ConfigError, RemoteFailed
from deploy.loads import Progress, Ran, Round, _arrivals, _program, _version
from deploy.measuring.sample import Sample
from deploy.plan import Node
from deploy.remote import Remote

COUNTS = False
Messages = Sequence[tuple[str, str]]  # (role, content)
START = 180.0  # seconds to import torch from a cold disk
MOVED = (0, 5, 15)  # since then it is sglang.benchmark.serving
DATA, OUTPUT = "prompts.jsonl", "output.jsonl"


def run(wanted: Round, node: Node, remote: Remote, progress: Progress) -> Ran:
    """One round. The API key goes by the client's environment, its value by stdin."""
    known = CLIENTS.get(node.profile.engine.name)
    if known is None:
        raise ConfigError(
            f"engine `{node.profile.engine.name}` brings no bench client that is known here",
            evidence=f"of these it is: {', '.join(CLIENTS)}",
            remedy="bench.load=own",
        )
    argv, total = known.argv(wanted, node, remote), len(wanted.prompts)
    asked = {
        "argv": argv,
        "env": dict(node.env),
        "files": {DATA: "".join(f"{json.dumps(known.row(one.messages))}\n" for one in wanted.prompts)},
        "output": OUTPUT,
        "secret": {"OPENAI_API_KEY": remote.place.key} if remote.place.key else {},
        "total": total,
    }
    deadline = START + math.ceil(total / wanted.concurrency) * wanted.timeout
    told = _program.run("bench_client", asked, remote, deadline=deadline, told=lambda done: progress(done, total))
    output = told["output"]
    if told["status"] or not isinstance(output, dict) or len(output.get("output_lens", ())) != total:
        raise RemoteFailed(
            f"{remote.host.name}: the engine's bench client ended with status {told['status']}, and without a result",
            status=told["status"],
            evidence=told["said"][-1500:],
            remedy="bench.load=own measures without it",
        )
    return Ran(samples(output, wanted), float(output["duration"]), shlex.join(argv), clock_jump=told["clock_jump"])


def _chat(messages: Messages) -> dict[str, Any]:
    """A row of sglang's data set `openai`: requests as they stand, in their order."""
    return {"messages": [{"role": role, "content": text} for role, text in messages]}


def _text(messages: Messages) -> dict[str, Any]:
    """A row of vllm's data set `custom`, which has single questions alone."""
    if len(messages) != 1:
        raise ConfigError(
            "vLLM's bench client asks single questions alone, and a prompt has several messages",
            evidence=" > ".join(role for role, _ in messages),
            remedy="bench.load=own",
        )
    return {"prompt": messages[0][1]}


def _sglang(wanted: Round, node: Node, remote: Remote) -> list[str]:
    """No warm-up of its own: round 0 is that. Without a version it is the old name, which the new ones take as well."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", _version.of(node, remote) or "")
    moved = found is not None and tuple(map(int, found.groups())) >= MOVED
    more: dict[str, Any] = {"temperature": wanted.temperature, "stream_options": {"include_usage": True}}
    more["cache_salt"] = secrets.token_hex(8)  # what an earlier round left in the prefix cache is not found
    if wanted.temperature:
        more["seed"] = wanted.seed
    words = {
        "backend": "sglang-oai-chat",
        "host": "127.0.0.1",
        "port": node.port,
        "model": node.profile.model.path,
        "served-model-name": node.served_name,
        "dataset-name": "openai",
        "dataset-path": f"{{folder}}/{DATA}",
        "num-prompts": len(wanted.prompts),
        "sharegpt-output-len": wanted.max_tokens,
        "max-concurrency": wanted.concurrency,
        "warmup-requests": 0,
        "seed": wanted.seed,
        "extra-request-body": json.dumps(more),
        "output-file": f"{{folder}}/{OUTPUT}",
    }
    said = [word for name, value in words.items() for word in (f"--{name}", str(value))]
    ends = [] if wanted.fixed_length else ["--disable-ignore-eos"]
    module = "sglang.benchmark.serving" if moved else "sglang.bench_serving"
    return [str(node.argv[0]), "-m", module, *said, "--output-details", *ends]


def _vllm(wanted: Round, node: Node, remote: Remote) -> list[str]:  # noqa: ARG001 - one name in all versions
    """The texts go as they are, for the server to put them under its chat template."""
    more: dict[str, Any] = {"cache_salt": secrets.token_hex(8)}
    if wanted.temperature:
        more["seed"] = wanted.seed
    words = {
        "backend": "openai-chat",
        "host": "127.0.0.1",
        "port": node.port,
        "endpoint": "/v1/chat/completions",
        "model": node.profile.model.path,
        "served-model-name": node.served_name,
        "dataset-name": "custom",
        "dataset-path": f"{{folder}}/{DATA}",
        "num-prompts": len(wanted.prompts),
        "custom-output-len": wanted.max_tokens,
        "max-concurrency": wanted.concurrency,
        "seed": wanted.seed,
        "temperature": wanted.temperature,
        "extra-body": json.dumps(more),
        "result-dir": "{folder}/",
        "result-filename": OUTPUT,
    }
    said = [word for name, value in words.items() for word in (f"--{name}", str(value))]
    ends = ["--ignore-eos"] if wanted.fixed_length else []
    flags = ["--skip-chat-template", "--disable-shuffle", "--save-result", "--save-detailed", *ends]
    return [str(node.argv[0]), "-m", "vllm.entrypoints.cli.main", "bench", "serve", *said, *flags]


@dataclass(frozen=True)
class Client:
    """How an engine's client is called, and a row of the data set that it is given."""

    argv: Callable[[Round, Node, Remote], list[str]]
    row: Callable[[Messages], dict[str, Any]]


CLIENTS: Mapping[str, Client] = {"sglang": Client(_sglang, _chat), "vllm": Client(_vllm, _text)}


def samples(output: Mapping[str, Any], wanted: Round) -> tuple[Sample, ...]:
    """From its output with details: tokens as the server counted them, spread over the chunks. When each request
    began, it does not tell.
    """
    return tuple(_sample(number, output, wanted) for number in range(len(wanted.prompts)))


def _sample(number: int, output: Mapping[str, Any], wanted: Round) -> Sample:
    prompt, error = wanted.prompts[number], str(output["errors"][number]).strip()
    tokens = 0 if error else count(output["output_lens"][number]) or 0
    times = [] if error else list(accumulate((output["ttfts"][number], *output["itls"][number])))
    counters = None if error else Counters(tokens, steps=None, drafted=None, accepted=None)
    first, first_tokens, chunks, counted_by = _arrivals.of([(at, None, True) for at in times], counters)
    return Sample(
        prompt=prompt.name,
        kind=prompt.kind,
        concurrency=wanted.concurrency,
        round=wanted.number,
        started=0.0,
        seconds=times[-1] if times else 0.0,
        first=first,
        first_tokens=first_tokens,
        chunks=chunks,
        counters=counters,
        finish="" if error else "length" if tokens >= wanted.max_tokens else "stop",
        text=str(output["generated_texts"][number]),
        error=error.rpartition("\n")[2][:500],
        tokens_by=counted_by,
    )
