"""Where the tensors land: what is dropped, what stays random, what the server refuses.

SGLang says neither of the first two (srt/models/llama_eagle3.py `load_weights`, 0.5.8 to 0.5.23), but for a warning in
`Eagle3DeepseekV2ForCausalLM` (srt/models/kimi_k25_eagle3.py, 0.5.12 to 0.5.23). vLLM stops at a name that it does not
know, and is silent about what it misses (model_executor/models/llama_eagle3.py, models/utils.py, 0.32.0 and 0.33.0: the
check for parameters that nothing filled, model_loader/default_loader.py, is skipped for a class that reports none).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from packaging.version import Version

from deploy.checkpoint import loaders, versions
from deploy.checkpoint.config import is_eagle3
from deploy.checkpoint.rules import Case, config, fail, is_draft, unknown, warn
from deploy.checkpoint.trace import Trace, trace
from deploy.findings import Finding
from deploy.host.remedy import portable
from deploy.text.legible import one_line

# Computed anew, the target's own, or for parallel drafting alone.
HARMLESS = re.compile(r"rotary_emb\.|(^|\.)verifier_(norm|lm_head)\.|mask_hidden")
COMPUTES = re.compile(r"layers?\.|norm|lm_head|(^|\.)fc\b|\.bias$")  # parts of what a draft of these classes computes
UNUSED = re.compile(r"layers\.[1-9]\d*\.input_layernorm\.weight$")  # only the first layer takes embeddings in
# Zeros in SGLang since 0.5.23, before that whatever lay there. So vLLM makes it (layers/linear.py:1720, 0.32.0),
# and with it not one drafted token of the tiny pair was accepted.
HARMLESS_IF_RANDOM = re.compile(r"\.o_proj\.bias$")
ENOUGH = 500  # names of which a remedy is tried: more than a draft has
WHOLE = re.compile(r"((Llama|Mistral|Qwen\d|DeepseekV\d|GptOss|Phi3|Gemma\d)(Moe)?ForCausalLM)?")  # classes of targets
STOPS = (
    (
        "attribute 'draft_vocab_size'",
        "add draft_vocab_size: lm_head's rows, by deploy ckpt fix, or null to use the target's head",
    ),
    ("target_hidden_size is null", "remove the key target_hidden_size: deploy ckpt fix"),
    ("1 layer", "train a draft of one layer, or for LlamaForCausalLMEagle3 upgrade to 0.5.12"),
    ("no size", "write it as a whole number above 0"),
    ("", "mend config.json"),
)
PLACES = (  # what a tensor that vLLM has no place for is, and what to do
    ("^d2t$", "say draft_vocab_size in config.json: as many as lm_head has rows"),
    (r"\.[qk]_norm\.", "if its layer is one of Qwen3: architectures: [Eagle3Qwen3ForCausalLM], model_type: qwen3"),
    ("", "name the layer midlayer.* or layers.0.*, without model. in front"),
)


def findings(case: Case) -> Iterator[Finding]:
    """What the loader makes of the names, one finding a cause."""
    landed = case.trace
    if landed is None:
        yield from _untraced(case)
        return
    if landed.error:
        yield from _stopped(case, landed.error)
        return
    refused = [landing for landing in landed.landings if landing.how == "refused" and landing.parameter is None]
    if refused:
        lines = "\n".join(f"{one_line(landing.tensor)}: {landing.why}" for landing in refused)
        what = f"{case.server} has no place for tensors of the draft, and will not start"
        remedy = next(remedy for part, remedy in PLACES if any(re.search(part, landing.tensor) for landing in refused))
        yield fail(what, lines, remedy, "will not start")
    yield from _lost(case, landed)


def _stopped(case: Case, error: str) -> Iterator[Finding]:
    """What the constructor raises, unless the rule `config` has said the same in better words."""
    if any(finding.outcome == "will not start" for finding in config.findings(case)):
        return
    first, _, rest = error.partition("\n")
    remedy = next(remedy for words, remedy in STOPS if words in error)
    said = [
        f"{key}: {json.dumps(v):.80}" for key, v in case.config.items() if re.search(rf"\b{re.escape(key)}\b", error)
    ]
    maps = [f"{name} {list(tensor.shape)}" for name, tensor in case.draft.tensors.items() if error.startswith(name)]
    keys = ["has " + ", ".join(sorted(map(str, case.config)))] if "Config' object has no attribute" in error else []
    evidence = "\n".join([rest.strip()[-600:], *(f"config.json: {one}" for one in said or keys), *maps]).strip()
    yield fail(f"{case.server} stops at this config: {first}", evidence, remedy, "will not start")


def _untraced(case: Case) -> Iterator[Finding]:
    """No table for this class, or packed tensors: nothing is said of them."""
    known = loaders.of(case.serving.engine, case.architecture)
    if case.serving.engine == "sglang" and ((known and case.loader is None) or "speculators_model_type" in case.config):
        return  # told by the rule `config`
    whole = case.serving.algorithm in (None, "EAGLE3") and WHOLE.fullmatch(case.architecture)
    if case.serving.engine == "sglang" and whole and is_draft(case.draft):
        yield _misnamed(case)
        return
    what = f"a draft of class {case.architecture or 'without a name'}"
    if "speculators_model_type" in case.config:
        what = "a Speculators folder"
    elif case.loader is not None:
        what = "a quantized draft"
    elif not is_eagle3(case.config):
        what = f"the class {case.architecture or 'without a name'}, which is no EAGLE-3 draft"
    told = f"no table says where {case.serving.engine} puts the tensors of {what}: that was not looked at"
    yield unknown(told, f"architectures: {case.config.get('architectures')}", "look at the measured accept length")


def _misnamed(case: Case) -> Finding:
    """The draft's worker looks for the map in its model, which no other class has: `hot_token_id` in
    srt/speculative/eagle_worker.py:167, 0.5.8; eagle_worker_v2.py:372, 0.5.23.
    """
    named = one_line(case.architecture, 80) or "no class"
    what = f"the tensors are those of an EAGLE-3 draft, and config.json names {named}: EAGLE3 stops at it"
    remedy = 'write architectures: ["LlamaForCausalLMEagle3"]'
    return fail(what, f"architectures: {case.config.get('architectures')!r:.80}", remedy, "will not start")


def _lost(case: Case, landed: Trace) -> Iterator[Finding]:
    """Dropped tensors and the parameters that miss them have one cause, and are told as one."""
    dropped = [name for name in landed.dropped if not HARMLESS.search(name)]
    refused = {landing.parameter for landing in landed.landings if landing.how == "refused"}
    missing = [name for name in landed.unfilled if name not in refused and not UNUSED.search(name)]
    if None in refused:  # what has no place is what is missing, and that is told
        missing = []
    if not case.draft.tensors:
        return
    zeros = case.serving.engine == "sglang"
    faint = [name for name in missing if zeros and HARMLESS_IF_RANDOM.search(name)]
    missing = [name for name in missing if name not in faint]
    parts = [(landing.parameter, landing.shard) for landing in landed.landings if landing.shard]
    lines = [f"{one_line(name)} -> dropped" for name in dropped] + [_starved(parts, name) for name in missing]
    silence = "with a warning" if case.loader and case.loader.unknown == "warned" else "without a word"
    if dropped and missing:
        what = f"{case.server} drops tensors of the draft {silence}, and parameters stay random"
        yield fail(what, "\n".join(lines), _remedy(case, dropped))
    elif dropped and not any(COMPUTES.search(name) for name in dropped):
        what = f"{case.server} drops tensors that it does not know {silence}: whether the draft needs them is not known"
        yield unknown(what, "\n".join(lines), "look at what they were trained for, and at the measured accept length")
    elif dropped:
        what = f"{case.server} drops tensors of the draft {silence}: it will not run as it was trained"
        tied = case.config.get("tie_word_embeddings") and dropped == ["lm_head.weight"]
        untie = "if this head was trained, write tie_word_embeddings: false into config.json"
        yield fail(what, "\n".join(lines), untie if tied else _remedy(case, dropped))
    elif missing:
        what = f"{case.server} finds no tensor for parameters, without a word: they stay random"
        yield fail(what, "\n".join(lines), _missing_remedy(case, missing))
    if faint:
        remedy = "say attention_bias: false, if the draft was trained without"
        yield warn(f"{case.server} makes a bias that no tensor fills", "\n".join(faint), remedy)
    yield from _head(case, landed)


def _starved(parts: Sequence[tuple[str | None, str]], name: str) -> str:
    """A parameter that nothing fills, or not all of it; `parts` are the shards that something fills."""
    shards = sorted(shard for parameter, shard in parts if parameter == name)
    return f"{name} <- {f'only {chr(44).join(shards)}, the rest is' if shards else 'nothing:'} random"


def _head(case: Case, landed: Trace) -> Iterator[Finding]:
    """VLLM takes the target's head for a missing one, which says other tokens where the draft has a vocabulary of its
    own (v1/spec_decode/llm_base_proposer.py, 0.32.0).
    """
    rows, vocabulary = case.number("draft_vocab_size"), case.number("vocab_size")
    there = any(landing.parameter == "lm_head.weight" for landing in landed.landings)
    if case.loader and case.loader.borrows_head and not there and rows is not None and rows != vocabulary:
        what = "lm_head is missing: the target's head would be taken for the draft's, without a word"
        yield fail(what, f"draft_vocab_size {rows}, vocab_size {vocabulary}", "save the draft with its lm_head")


def _missing_remedy(case: Case, missing: list[str]) -> str:
    """SGLang takes the target's head where draft_vocab_size is null (kimi_k25_eagle3.py:340-362, 0.5.23)."""
    if all(name.endswith(".bias") for name in missing):
        return "say attention_bias: false, if the draft was trained without"
    if missing != ["lm_head.weight"]:
        return "save the draft with all of them"
    if case.number("draft_vocab_size") == case.number("vocab_size") and not any("d2t" in n for n in case.draft.tensors):
        return "make draft_vocab_size null, so that the target's head is taken: deploy ckpt fix"
    return "save the draft with its lm_head, or put there the rows of the target's head that d2t names"


def _remedy(case: Case, dropped: list[str]) -> str:
    """The nearest thing that helps: other names, a newer server, or another training."""
    newest = case.loader and loaders.choose(case.serving.engine, case.architecture, Version(versions.NEWEST["sglang"]))
    lost = [name for name in dropped if re.search(r"[qk]_norm\.|_proj\.bias$", name)]
    if case.serving.engine == "vllm":
        key = "norm_before_fc" if any("input_norm" in name for name in dropped) else "attention_bias"
        return f"say {key}: true, if the draft was trained with it"
    if lost:
        return f"{lost[0]} and its like cannot be repaired: convert the draft, or train it, for this class"
    if _helps(case, case.loader, dropped):
        return "rename them to midlayer.*, without model.: deploy ckpt fix, or the prepare hook hooks/fix_eagle3_keys"
    if _helps(case, newest, dropped):
        since = next(row for row in loaders.of(case.serving.engine, case.architecture) if _helps(case, row, dropped))
        return f"upgrade to {since.versions.split(',')[0].removeprefix('>=')} or later"
    wrapper = _wrapper(case, dropped)
    unwrapped = f"save it without {wrapper!r} before its names: a wrapper of the training put it there"
    return unwrapped if wrapper else "convert the draft, or train it, for this class"


def _wrapper(case: Case, dropped: list[str]) -> str:
    """What all dropped names begin with, if they would land without it: `module.` of DDP, `draft_model.`"""
    if case.loader is None:
        return ""
    prefixes = [dropped[0][: at + 1] for at, letter in enumerate(dropped[0]) if letter == "."]
    for prefix in prefixes:
        if not all(name.startswith(prefix) for name in dropped):
            break
        tensors = {name[len(prefix) :]: case.draft.tensors[name] for name in dropped[:ENOUGH]}
        landed = trace(case.loader, tensors, case.config)
        if not landed.error and not landed.dropped:
            return prefix
    return ""


def _helps(case: Case, loader: loaders.Loader | None, dropped: list[str]) -> bool:
    """Whether the portable spelling of these names would land with this loader."""
    if loader is None:
        return False
    tensors = {portable(name): case.draft.tensors[name] for name in dropped[:ENOUGH]}
    landed = trace(loader, tensors, case.config)
    return not landed.error and not landed.dropped
