"""What vLLM makes of a draft, told from its headers and config before anything is launched.

Rules for vLLM's `Eagle3LlamaForCausalLM`, read in 0.32.0 (files are named relative to `vllm/`) and tried there. Unlike
SGLang, this loader stops at a tensor that it does not know. Like SGLang, it is silent about one that it misses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from deploy.checkpoint import eagle3
from deploy.checkpoint.draft import CHECK, HARMLESS, Case, Serving, fail, fit, misshapen, vocabulary_map
from deploy.checkpoint.draft_facts import DraftFacts
from deploy.findings import Finding

READ = "0.32"  # the versions whose loader was read
ARCHITECTURES = {"LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM"}


def findings(draft: DraftFacts, target: Mapping[str, Any] | None, serving: Serving) -> list[Finding]:
    """Everything that is wrong with a draft beside this target config; one PASS if nothing is. Reads nothing.

    Of another version nothing is certain: what would be wrong, or fine, is UNKNOWN there.
    """
    if draft.broken:
        return [fail("the draft's files are broken", "\n".join(draft.broken), "copy or save the draft again")]
    target = target or {}
    case = Case(draft, eagle3.mapping(target, "text_config") or target, serving)
    found = list(_findings(case))
    if (serving.version or "").startswith(f"{READ}."):
        return found
    unsure = f"cannot tell for {case.server}; in {READ}: "
    return [replace(finding, verdict="UNKNOWN", what=f"{unsure}{finding.what}") for finding in found]


def _findings(case: Case) -> Iterator[Finding]:
    architectures = case.draft.config.get("architectures")
    architecture = str(architectures[0] if isinstance(architectures, list) and architectures else architectures)
    if "speculators_model_type" in case.draft.config:
        yield _unruled("a Speculators folder")
    elif architecture not in ARCHITECTURES:
        yield _unruled(f"a draft of class {architecture}")
    elif case.draft.config.get("quantization_config"):
        yield _unruled("a quantized draft")
    else:
        wrong = [finding for rule in RULES for finding in rule(case)]
        fine = Finding(
            CHECK, "PASS", f"{case.server} loads this draft as Eagle3LlamaForCausalLM, and it fits its target"
        )
        yield from wrong or [fine]


def _unruled(what: str) -> Finding:
    remedy = "look at the measured accept length"
    return Finding(CHECK, "UNKNOWN", f"no rules for {what} on vLLM: nothing was checked", "", remedy)


def _placed(case: Case) -> dict[str, str | None]:
    """Where each tensor goes, in the portable spelling; None: nowhere (models/llama_eagle3.py load_weights).

    It writes `model.` before every name, so one that has it already is not known; and it has no legacy names.
    """
    known = {name: eagle3.place(name, "new", case.draft.config) for name in case.draft.tensors}
    odd = [name for name in known if name.startswith("model.") or "aux_norm_" in name]
    return {name: place for name, place in {**known, **dict.fromkeys(odd)}.items() if "mask_hidden" not in name}


def _aux_layers(case: Case) -> Iterator[Finding]:
    """Captured is the input of the layer of that id, SGLang's is that of the next (models/interfaces.py)."""
    top = case.draft.config.get("eagle_aux_hidden_state_layer_ids")
    ids = top if isinstance(top, list) and top else eagle3.aux_ids(case.draft.config)
    layers = eagle3.number(case.target, "num_hidden_layers")
    wrong = [number for number in ids if type(number) is not int or not 0 <= number < (layers or number + 1)]
    if wrong:
        what = f"aux layers {wrong} do not exist in the target, which has {layers}"
        yield fail(what, f"eagle_aux_hidden_state_layer_ids: {ids}", "write the ids that the draft was trained with")


def _counted_for_sglang(case: Case) -> Iterator[Finding]:
    """What tells that SGLang's count is meant: the embeddings for a layer, or SGLang's own default written out."""
    ids, layers = eagle3.aux_ids(case.draft.config), eagle3.number(case.target, "num_hidden_layers") or 0
    if 0 in ids or (layers and ids == [1, layers // 2 - 1, layers - 4]):
        what = f"aux layers {ids} look like SGLang's count, which is one lower: acceptance would suffer"
        remedy = f"if the draft was trained for SGLang, write {[number + 1 for number in ids if type(number) is int]}"
        yield Finding(CHECK, "WARN", what, f"eagle_config.eagle_aux_hidden_state_layer_ids: {ids}", remedy)


def _unknown(case: Case) -> Iterator[Finding]:
    """A name that is no parameter stops the server; a bias is passed over in silence (models/utils.py)."""
    nowhere = [name for name, place in _placed(case).items() if place is None and not HARMLESS.search(name)]
    if case.draft.config.get("attention_bias"):
        nowhere = [name for name in nowhere if "_proj.bias" not in name]
    silent = [name for name in nowhere if name.endswith(".bias")]
    if loud := [name for name in nowhere if name not in silent]:
        what = f"{case.server} has no place for tensors of the draft, and will not start"
        yield fail(what, "\n".join(loud), "name the layer midlayer.* or layers.0.*, without model. in front")
    if silent:
        what = f"{case.server} drops tensors of the draft without a word"
        yield fail(what, "\n".join(silent), "say attention_bias: true, if the draft was trained with it")


def _missing(case: Case) -> Iterator[Finding]:
    """A parameter that no tensor fills stays as it was made; nothing reports it. A missing head is the target's, which
    says other tokens where the draft has a vocabulary of its own (v1/spec_decode/llm_base_proposer.py).
    """
    missing = eagle3.unfilled("new", case.draft.config, set(_placed(case).values()))
    if "lm_head.weight" in missing:
        missing.discard("lm_head.weight")
        rows, vocabulary = case.number("draft_vocab_size"), case.number("vocab_size")
        if rows is not None and rows != vocabulary:
            what = "lm_head is missing: the target's head would be taken for the draft's, without a word"
            yield fail(what, f"draft_vocab_size {rows}, vocab_size {vocabulary}", "save the draft with its lm_head")
    if missing:
        what = f"{case.server} finds no tensor for parameters, without a word: they stay random"
        yield fail(what, "\n".join(f"{name} <- nothing" for name in sorted(missing)), "save the draft with all of them")


def _shapes(case: Case) -> Iterator[Finding]:
    """A shape that differs stops the server: "Tried to load weights of size" (layers/linear.py)."""
    if wrong := misshapen(case.draft, _placed(case), "new"):
        what = f"{case.server} builds other shapes from config.json than the draft's tensors have, and will not start"
        yield fail(what, "\n".join(wrong), "mend hidden_size, target_hidden_size, draft_vocab_size or the aux layers")


RULES = (fit, _aux_layers, _counted_for_sglang, vocabulary_map, _unknown, _missing, _shapes)
