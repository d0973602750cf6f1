"""What contradicts itself in a profile although each of its fields is fine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from deploy.config.gates import DRAFTED, split

if TYPE_CHECKING:
    from deploy.profile import Profile


# flags by which the tool itself finds the server, and asks it, and knows what it serves
OWN_FLAGS = {
    "sglang": {
        "port": "port",
        "model-path": "model.path",
        "model": "model.path",
        "served-model-name": "model.name",
        "speculative-draft-model-path": "draft.path",
        "speculative-draft-model": "draft.path",
        "nnodes": "nodes",
    },
    "vllm": {
        "port": "port",
        "model": "model.path",
        "served-model-name": "model.name",
        "speculative-config": "speculative",  # its parts may be said: speculative-config.NAME
        "speculative-config.model": "draft.path",
        "spec-model": "draft.path",
        "nnodes": "nodes",
    },
    "llamacpp": {"port": "port", "model": "model.path", "alias": "model.name", "model-draft": "draft.path"},
}

# variables that do what the secret flag `api-key` does, unknown to the tool, which must send the key as well
KEY_VARIABLES = {"vllm": "VLLM_API_KEY", "llamacpp": "LLAMA_API_KEY"}

# engines that no size in `parallel` reaches, and how they are told what it would say
UNSPREAD = {
    "llamacpp": "spreads a model over all GPUs by itself: args.split-mode, args.tensor-split",
    "command": "is started as args.argv says, and by nothing else",
}


def contradictions(profile: Profile) -> Iterator[tuple[str, str]]:
    """Each (dotted path, what is wrong) that no single field shows."""
    yield from _speculation(profile)
    yield from _chain(profile)
    yield from _spread(profile)
    yield from _said_twice(profile)
    yield from _own_flags(profile)
    yield from _gates(profile)


def _speculation(profile: Profile) -> Iterator[tuple[str, str]]:
    speculative = profile.speculative
    if speculative is None:
        if profile.draft:
            yield "draft", "needs `speculative`, which says how it is used: speculative: {algorithm: EAGLE3}"
        return
    if speculative.algorithm == "EAGLE3" and profile.draft is None:
        yield "speculative.algorithm", "EAGLE3 needs a draft"
    tokens, steps = speculative.num_draft_tokens, speculative.num_steps
    if speculative.eagle_topk == 1 and tokens not in (None, steps + 1):
        yield (
            "speculative.num_draft_tokens",
            f"is {tokens}, but a chain (eagle_topk 1) of {steps} steps verifies {steps + 1}; leave it out",
        )


def _chain(profile: Profile) -> Iterator[tuple[str, str]]:
    if profile.engine.name == "vllm" and profile.speculative and profile.speculative.eagle_topk > 1:
        yield "speculative.eagle_topk", f"is {profile.speculative.eagle_topk}, but vLLM drafts a chain: 1"


def _spread(profile: Profile) -> Iterator[tuple[str, str]]:
    if profile.engine.name == "sglang":
        yield from _spread_of_sglang(profile)
    if profile.engine.name == "vllm":
        yield from _spread_of_vllm(profile)
    if profile.engine.name in UNSPREAD:
        for key, size in profile.parallel:
            if size != 1:
                yield f"parallel.{key}", f"is {size}, but {profile.engine.name} {UNSPREAD[profile.engine.name]}"


def _spread_of_vllm(profile: Profile) -> Iterator[tuple[str, str]]:
    """Each copy (dp) has GPUs of its own; experts, where they are shared out, are over the GPUs of all copies."""
    parallel = profile.parallel
    if parallel.ep not in (1, parallel.tp * parallel.dp):
        yield "parallel.ep", f"is {parallel.ep}; vLLM shares experts among tp x dp = {parallel.tp * parallel.dp} GPUs"
    wanted, there = parallel.tp * parallel.pp * parallel.dp, (profile.gpus or 0) * profile.nodes
    if there and wanted != there:
        sizes = f"tp {parallel.tp} x pp {parallel.pp} x dp {parallel.dp} = {wanted} GPUs"
        yield "parallel", f"{sizes}, but {profile.nodes} x {profile.gpus} are taken"


def _spread_of_sglang(profile: Profile) -> Iterator[tuple[str, str]]:
    parallel = profile.parallel
    if parallel.tp % parallel.ep:
        yield "parallel.ep", f"is {parallel.ep}, which does not divide tp {parallel.tp}"
    if not profile.gpus:
        return
    wanted, there = parallel.tp * parallel.pp, profile.gpus * profile.nodes
    # with data-parallel attention the copies share the tensor-parallel GPUs; without it each has its own
    if there not in (wanted, wanted * parallel.dp):
        yield (
            "parallel",
            f"tp {parallel.tp} x pp {parallel.pp} = {wanted} GPUs, but {profile.nodes} x {profile.gpus} are taken",
        )


def _said_twice(profile: Profile) -> Iterator[tuple[str, str]]:
    for name, how in profile.secrets.items():
        if name in profile.env:
            yield f"env.{name}", "is also a secret; its value belongs in the caller's environment alone"
        if how != "env" and how in profile.args:
            yield f"args.{how}", f"is also given by the secret {name}"
    for name in profile.nccl.variables():
        if f"NCCL_{name}" in profile.env:
            yield f"env.NCCL_{name}", f"is also said by nccl.{name}"


def _own_flags(profile: Profile) -> Iterator[tuple[str, str]]:
    for name in profile.args:
        if name.replace("_", "-") == "api-key":
            yield f"args.{name}", "would stand in the command line for all to see: secrets: {NAME: api-key}"
    variable = KEY_VARIABLES.get(profile.engine.name, "")
    for part, given in (("env", variable in profile.env), ("secrets", profile.secrets.get(variable) == "env")):
        if given:
            yield f"{part}.{variable}", "is a key that the tool would not ask with: secrets: {NAME: api-key}"
    own = OWN_FLAGS.get(profile.engine.name, {})
    for name in profile.args:
        key = own.get(name.replace("_", "-"))
        if key:
            yield f"args.{name}", f"is said by `{key}`: the tool would go on with the other value"


def _gates(profile: Profile) -> Iterator[tuple[str, str]]:
    """What can never be measured, or never be compared, is told before anything is started."""
    rungs = profile.bench.concurrency
    for name, gate in profile.gates.items():
        measure, streams = split(name)
        why = ""
        if profile.speculative is None and (measure in DRAFTED or gate.of == "baseline"):
            why = "needs `speculative`: nothing is drafted, so nothing is accepted, or gained"
        elif streams is not None and streams not in rungs:
            why = f"is not measured: bench.concurrency is {', '.join(map(str, rungs))}"
        elif measure == "goodput" and profile.bench.slo.ttft is None and profile.bench.slo.itl is None:
            why = "needs `bench.slo`, which says what a good answer keeps: bench.slo.ttft=0.5"
        elif gate.of and measure == "differences":
            why = "is a count: '<= 0'"
        elif gate.of == "baseline" and measure in DRAFTED:
            why = f"has no baseline, which drafts nothing: '{gate.op} {gate.bound:.15g}'"
        if why:
            yield f"gates.{name}", why
