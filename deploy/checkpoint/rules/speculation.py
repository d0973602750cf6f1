"""How the profile has the server speculate: what fits no EAGLE-3 draft, whatever its tensors."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import Version

from deploy.checkpoint import targets, versions
from deploy.checkpoint.config import LIMIT, Config, architecture, is_eagle3, mapping, number
from deploy.checkpoint.rules import Case, fail, unknown, warn
from deploy.findings import Finding

LATENT = {"trtllm_mla", "cutedsl_mla"}  # attention backends that take nothing else
SHORTEST = {"llama": 2048}  # transformers' LlamaConfig, where config.json leaves it out
LENGTHS = ("max_sequence_length", "seq_length", "max_seq_len", "model_max_length", "max_position_embeddings")


def findings(case: Case) -> Iterator[Finding]:
    """SGLang's settings; vLLM has one method, and its own words for the rest."""
    if case.serving.engine != "sglang" or not is_eagle3(case.config):
        return
    yield from _algorithm(case)
    yield from _tree(case)
    yield from _hook(case)
    yield from _context(case)
    yield from _attention(case)


def _algorithm(case: Case) -> Iterator[Finding]:
    """EAGLE turns the capture of aux layers off, so `fc` is skipped (srt/models/llama_eagle3.py:238, 0.5.23, `forward`;
    PR sgl-project/sglang#21272, closed unmerged).
    """
    algorithm = (case.serving.algorithm or "").upper()
    if algorithm in {"EAGLE", "NEXTN"}:
        what = f"algorithm {algorithm} with an EAGLE-3 draft: the draft gets one layer's states, not the fused ones"
        yield fail(what, f"architectures: {case.config.get('architectures')}", "speculative.algorithm=EAGLE3")


def _tree(case: Case) -> Iterator[Finding]:
    """A chain is always num_steps + 1 tokens, with a warning (srt/server_args.py:2214, 0.5.8; speculative_hook.py:1260,
    0.5.23); a tree has eagle_topk candidates in its first step and eagle_topk squared in each later one, and more than
    there are cannot be chosen (srt/speculative/eagle_utils.py:27, 0.5.8; :110, 0.5.23).
    """
    steps, branches, tokens = case.serving.num_steps, case.serving.eagle_topk, case.serving.num_draft_tokens
    evidence = f"num_steps {steps}, eagle_topk {branches}, num_draft_tokens {tokens}"
    if steps is None:
        if branches is not None or tokens is not None:
            what = "eagle_topk and num_draft_tokens are said without num_steps, where the server wants all or none"
            yield fail(what, evidence, "speculative.num_steps=3", "will not start")
        return
    if branches == 1 and tokens not in (None, steps + 1):
        what = f"num_draft_tokens {tokens} does not fit a chain of {steps} steps: the server takes {steps + 1}"
        yield warn(what, evidence, f"speculative.num_draft_tokens={steps + 1}, or leave it out")
    candidates = (branches or 1) + (steps - 1) * (branches or 1) ** 2
    if branches is not None and branches > 1 and tokens is not None and tokens - 1 > candidates:
        what = f"num_draft_tokens {tokens} is more than the tree has: 1 + {candidates}"
        yield fail(what, evidence, f"speculative.num_draft_tokens={candidates + 1} at most", "will not start")


def _hook(case: Case) -> Iterator[Finding]:
    """The target must hand out the states of its aux layers ("does not implement set_eagle3_layers_to_capture",
    see deploy/checkpoint/targets.py).
    """
    kind = architecture(case.target.config) if case.target else ""
    if not kind:
        return
    there = targets.hook(kind, case.version)
    newer = Version(case.version.base_version) > Version(versions.NEWEST["sglang"])
    evidence = f"target's architectures: [{kind}]"
    if there is None or (there is False and newer):
        what = f"whether {case.server} can take aux states of a target of class {kind} is not known"
        since = "see whether the start fails at set_eagle3_layers_to_capture"
        yield unknown(what, evidence, since)
    elif there is False:
        what = f"{case.server} cannot take aux states of a target of class {kind}, and will not start"
        since = targets.HOOK.get(kind, ("", ""))[1]
        remedy = f"upgrade to {since} or later" if since else "serve this target without EAGLE-3"
        yield fail(what, evidence, remedy, "will not start")


def _context(case: Case) -> Iterator[Finding]:
    """The draft is opened with the target's context length, and one that it does not reach ends the start ("is greater
    than the derived context_length", srt/configs/model_config.py:342, 0.5.8; :1299, 0.5.23).
    """
    ours = context_length(case.config) or SHORTEST.get(str(case.config.get("model_type")))
    theirs = case.serving.context_length or (context_length(case.target_config) if case.target_config else None)
    if theirs is None or ours is None or ours >= theirs or case.serving.longer_context:
        return
    evidence = f"max_position_embeddings {case.config.get('max_position_embeddings')}"
    remedy = "env.SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1, or a larger max_position_embeddings of the draft"
    if case.serving.algorithm is None:  # no profile: nobody has said with which length and environment
        what = f"the draft is made for {ours} tokens of context, the target for {theirs}: the server asks for as many"
        yield warn(what, evidence, remedy)
        return
    what = f"the draft is made for {ours} tokens of context, the target is served with {theirs}"
    yield fail(what, evidence, remedy, "will not start")


def context_length(config: Config) -> int | None:
    """As SGLang derives it: the longest key that it knows, times the factor of rope_scaling (srt/utils/
    hf_transformers/common.py:677, 0.5.23); None where the config leaves it to a default.
    """
    scaling = mapping(config, "rope_scaling") or mapping(config, "rope_parameters")
    factor = scaling.get("factor", 1)
    kind = scaling.get("rope_type", scaling.get("type"))
    finite = isinstance(factor, int | float) and 0 < factor < LIMIT  # NaN is not
    if "original_max_position_embeddings" in scaling or kind == "llama3" or not finite:
        factor = 1
    said = next((value for key in LENGTHS if (value := number(config, key)) is not None), None)
    return None if said is None else int(said * factor)


def _attention(case: Case) -> Iterator[Finding]:
    """Backends of latent attention take no draft of Llama layers ("requires MLA model", srt/speculative/draft_utils.py
    :361, :381 and :515, 0.5.23; issues sgl-project/sglang#23490, #20298).
    """
    used = case.serving.draft_attention_backend or case.serving.attention_backend
    latent = "kv_lora_rank" in case.config or case.architecture == "Eagle3DeepseekV2ForCausalLM"
    if used in LATENT and not latent:
        what = f"attention backend {used} takes no draft of class {case.architecture}"
        remedy = "args.speculative-draft-attention-backend=flashinfer, triton or trtllm_mha"
        yield fail(what, f"attention backend of the draft: {used}", remedy, "will not start")
