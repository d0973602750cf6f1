"""config.json of the draft: what the server reads of it, what it takes where a key is missing, what it ignores."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import Version

from deploy.checkpoint import loaders, versions
from deploy.checkpoint.config import is_eagle3, mapping
from deploy.checkpoint.rules import Case, fail, unknown, warn
from deploy.findings import Finding
from deploy.text.legible import one_line

# Of the types that transformers knows (models/auto/auto_mappings.py, 5.6 to 5.19) those that may be said of drafts.
KINDS = (
    "llama mistral mixtral qwen2 qwen2_moe qwen3 qwen3_moe deepseek_v2 deepseek_v3 kimi_k2 llama4_text gpt_oss phi phi3"
    " gemma gemma2 gemma3_text glm glm4 glm4_moe granite olmo2 cohere cohere2 longcat_flash"
).split()
THETA = 10000.0  # what transformers and SGLang take for a rope_theta that nobody names


def findings(case: Case) -> Iterator[Finding]:
    """SGLang's reading of it, and what transformers makes of it for both; vLLM's own is told by its loader."""
    if not is_eagle3(case.config):
        return
    if case.serving.engine == "vllm" and "speculators_model_type" not in case.config:
        yield from _model_type(case)
        yield from _heads(case)
    if case.serving.engine != "sglang":
        return
    if "speculators_model_type" in case.config:
        yield _speculators(case)
        return
    yield from _class(case)
    yield from _model_type(case)
    yield from _heads(case)
    yield from _residual(case)
    yield from _ignored(case)
    yield from _tied(case)
    yield from _rope(case)


def _speculators(case: Case) -> Finding:
    """Nothing in SGLang knows Speculators (no word of it in any wheel from 0.5.8 to 0.5.23): transformers stops at a
    config without model_type.
    """
    what = "this is a raw Speculators folder, which SGLang does not know"
    evidence = f"speculators_model_type: {case.config['speculators_model_type']}"
    return fail(what, f"{evidence}; architectures: {case.architecture}", "deploy ckpt fix", "will not start")


def _class(case: Case) -> Iterator[Finding]:
    """A class that is not registered is looked for in transformers, and not found there: "Cannot find model module"
    (srt/model_loader/utils.py:54, 0.5.8; :156, 0.5.23). The classes are a list there (:106, 0.5.8; :225, 0.5.23).
    """
    if isinstance(case.config.get("architectures"), str):
        remedy = f'write it as a list: ["{one_line(case.architecture, 80)}"]'
        told = f"architectures: {case.architecture!r:.80}"
        yield fail("architectures is text, which is taken letter by letter", told, remedy, "will not start")
        return
    there = case.exact is not None and not case.exact.error
    if case.loader is not None or there or case.config.get("auto_map"):
        return
    known = loaders.of("sglang", case.architecture)
    what = f"{case.server} has no class {case.architecture}"
    if known:
        since = known[0].versions.split(",")[0].removeprefix(">=")
        yield fail(what, f"it is there since {since}", f"upgrade to {since} or later", "will not start")
    elif Version(case.version.base_version) <= Version(versions.NEWEST["sglang"]):
        remedy = "if the draft is one of Llama layers: architectures: [LlamaForCausalLMEagle3], by deploy ckpt fix"
        yield fail(what, f"architectures: {case.config.get('architectures')}", remedy, "will not start")
    else:
        told = f"whether {case.server} has a class {case.architecture} is not known"
        yield unknown(told, f"none has up to {versions.NEWEST['sglang']}", "ask the engine itself: --exact")


def _model_type(case: Case) -> Iterator[Finding]:
    """Transformers finds the config's class by model_type ("Unrecognized model in", models/auto/configuration_auto.py);
    SGLang registers kimi_k2 since 0.5.12 (srt/utils/hf_transformers/common.py; issue sgl-project/sglang#25673), vLLM
    0.32.0 has it too (transformers_utils/config.py).
    """
    kind = case.config.get("model_type")
    if case.config.get("auto_map"):
        return
    if not isinstance(kind, str) or not kind:
        remedy = 'add it: "llama" for LlamaForCausalLMEagle3; deploy ckpt fix'
        yield fail("config.json names no model_type", f"model_type: {kind!r:.40}", remedy, "will not start")
    elif kind == "kimi_k2" and case.serving.engine == "sglang" and not case.since("0.5.12"):
        what = f"{case.server} does not know the model_type kimi_k2"
        yield fail(what, "model_type: kimi_k2", "write deepseek_v3, or upgrade to 0.5.12 or later", "will not start")
    elif kind not in KINDS and case.exact is None:  # the engine itself has tried it
        what = f"whether the server's transformers knows the model_type {one_line(kind, 80)} is not known"
        remedy = 'write "llama" for LlamaForCausalLMEagle3, or ask the engine itself: --exact'
        yield unknown(what, f"model_type: {one_line(kind, 80)}", remedy)


def _heads(case: Case) -> Iterator[Finding]:
    """Transformers 5, which SGLang has since 0.5.10 and vLLM 0.32.0, refuses heads that do not divide the width
    (models/llama/configuration_llama.py `validate_architecture`, transformers 5.19).
    """
    hidden, heads = case.number("hidden_size"), case.number("num_attention_heads")
    fifth = case.serving.engine == "vllm" or case.since("0.5.10")
    if fifth and case.config.get("model_type") == "llama" and hidden and heads and hidden % heads:
        what = f"the hidden size ({hidden}) is not a multiple of the number of attention heads ({heads})"
        evidence = f"hidden_size {hidden}, num_attention_heads {heads}"
        yield fail(what, evidence, "mend the number of heads", "will not start")


def _residual(case: Case) -> Iterator[Finding]:
    """SGLang keeps the residual as it was before the norm (no word of the key in any wheel from 0.5.8 to 0.5.23;
    srt/models/llama_eagle3.py, LlamaDecoderLayer.forward). Speculators trains with the other one by default.
    """
    if case.config.get("norm_before_residual"):
        what = "the draft was trained with norm_before_residual, which SGLang does not implement"
        remedy = "train with norm_before_residual: false, or serve it with vLLM; it cannot be repaired"
        yield fail(what, "config.json: norm_before_residual: true", remedy)


def _ignored(case: Case) -> Iterator[Finding]:
    """Keys that are passed over: a sliding window (srt/models/llama_eagle3.py has only --speculative-draft-window-size,
    0.5.12 to 0.5.23), and norm_output before 0.5.12, for the latent class before 0.5.13 (kimi_k25_eagle3.py).
    """
    window = case.config.get("sliding_window")
    kinds = case.config.get("layer_types")
    slides = "sliding_attention" in kinds if isinstance(kinds, list) else window and window is not True
    if slides and case.config.get("use_sliding_window") is not False and case.serving.draft_window is None:
        what = "the draft was trained with a sliding window, and is served with full attention"
        remedy = "args.speculative-draft-window-size, since 0.5.12, or train with full attention"
        yield warn(what, f"sliding_window: {window}; layer_types: {kinds}", remedy)
    since = "0.5.12" if case.architecture == "LlamaForCausalLMEagle3" else "0.5.13"
    if case.config.get("norm_output") and not case.since(since):
        what = f"{case.server} does not read norm_output: each draft step after the first starts from another state"
        yield warn(what, "config.json: norm_output: true", f"upgrade to {since} or later")


def _tied(case: Case) -> Iterator[Finding]:
    """With tied embeddings the head is the target's embeddings, of all its tokens (srt/models/llama_eagle3.py:275,
    0.5.8; `set_embed` in srt/speculative/eagle_worker_v2.py, 0.5.23). A head that is there is dropped, which the rule
    `trace` tells.
    """
    if not case.config.get("tie_word_embeddings") or any("lm_head" in name for name in case.draft.tensors):
        return
    rows, vocabulary = case.number("draft_vocab_size"), case.number("vocab_size")
    evidence = f"tie_word_embeddings: true, draft_vocab_size {rows}, vocab_size {vocabulary}"
    if rows is not None and rows != vocabulary:
        what = "the draft's head is tied to embeddings of another number of tokens"
        yield fail(what, evidence, "save the draft with its lm_head, and tie_word_embeddings: false")
    elif case.target_config and not case.target_config.get("tie_word_embeddings"):
        what = "the draft's head is tied to the target's embeddings, and the target's own is not"
        yield warn(what, evidence, "make draft_vocab_size null and tie_word_embeddings false, if its head was meant")


def _rope(case: Case) -> Iterator[Finding]:
    """Transformers 5 writes rope_parameters; 4.57, which SGLang has up to 0.5.9, knows rope_theta and rope_scaling
    alone, and takes 10000 for what it does not find (srt/models/llama.py:251, 0.5.8; :322, 0.5.23).
    """
    nested = mapping(case.config, "rope_parameters")
    top, inner = case.config.get("rope_theta"), nested.get("rope_theta")
    evidence = f"rope_theta: {top}, rope_parameters: {nested}"
    if case.since("0.5.10"):
        if top is not None and inner is not None and top != inner:
            what = "config.json names two values of rope_theta, and which one is taken is the server's to say"
            yield warn(what, evidence, "write the one that the draft was trained with in both places")
        return
    if inner is not None and inner != (THETA if top is None else top):
        what = f"{case.server} reads rope_theta at the top level alone, and takes {THETA if top is None else top}"
        yield warn(what, evidence, f"write rope_theta: {inner} there as well: deploy ckpt fix")
    if nested.get("rope_type", "default") != "default" and not case.config.get("rope_scaling"):
        what = f"{case.server} reads rope_scaling alone: the positions are not scaled"
        yield warn(what, evidence, "write it as rope_scaling as well: deploy ckpt fix")
