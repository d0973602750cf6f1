"""The aux layers: hidden states of a few of the target's layers, which `fc` fuses for the draft.

SGLang captures the input of layer id + 1 (srt/models/llama.py:941, 0.5.23), of DeepSeek and Kimi since 0.5.13 that of
layer id (deepseek_v2.py:3458-3473), and takes [2, n // 2, n - 3] where no ids are named. It reads the ids in
`eagle_config` alone (srt/model_executor/model_runner.py:320-344, 0.5.8; spec_aux_hidden_state.py:185-196, 0.5.23).
vLLM takes the input of layer id, ids at the top level first (model_executor/models/interfaces.py, 0.32.0).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from deploy.checkpoint import targets
from deploy.checkpoint.config import architecture, aux_ids, is_eagle3, mapping, number, top_aux_ids
from deploy.checkpoint.rules import Case, fail, warn
from deploy.findings import Finding

KEY = "eagle_aux_hidden_state_layer_ids"


def findings(case: Case) -> Iterator[Finding]:
    """Are the ids read, do such layers exist, are they as many as `fc` fuses, and counted as they were trained?"""
    if not is_eagle3(case.config) or "speculators_model_type" in case.config:
        return
    nested = mapping(case.config, "eagle_config")
    if "use_aux_hidden_state" in nested and not nested["use_aux_hidden_state"]:
        yield from _turned_off(case)
        return
    if case.serving.engine == "sglang" and nested.get(KEY) is not None and not aux_ids(case.config):
        yield from _none(nested[KEY])
        return
    ids = _ids(case)
    layers = number(case.target_config, "num_hidden_layers")
    wrong = _wrong(case, ids, layers)
    if wrong:
        what = f"aux layers {wrong} do not exist in the target" + (f", which has {layers}" if layers else "")
        yield fail(what, _meaning(case, ids, layers), "write the ids that the draft was trained with", "will not start")
        return
    yield from _count(case, ids, layers)
    yield from _not_read(case, layers)
    if layers and ids:
        on_vllm = case.serving.engine == "vllm"
        yield from _counted_for_sglang(ids, layers) if on_vllm else _counted_for_others(case, ids, layers)


def _none(said: Any) -> Iterator[Finding]:
    """Ids that are there and name no layer, as Model Optimizer may write them: nothing is captured, and the target's
    `forward` does not find what it unpacks (srt/models/llama.py:398 and :518, 0.5.8; :502 and :621, 0.5.23).
    """
    what = f"aux layers {said!r:.80} name no layer: nothing is captured, and the server stops at its first batch"
    remedy = "write the ids that the draft was trained with, or take the key out: then the default is captured"
    yield fail(what, f"eagle_config.{KEY}: {said!r:.80}", remedy, "will not start")


def _ids(case: Case) -> list[Any]:
    """The ids that steer the capture."""
    if case.serving.engine == "vllm" and top_aux_ids(case.config):
        return top_aux_ids(case.config)
    return aux_ids(case.config)


def _wrong(case: Case, ids: list[Any], layers: int | None) -> list[Any]:
    """Ids of layers that the target does not have, or whose states it does not hand out."""
    odd = [number for number in ids if type(number) is not int]
    if odd:
        return odd
    if case.serving.engine == "vllm":
        return [number for number in ids if not 0 <= number < (layers or number + 1)]
    kind = architecture(case.target.config) if case.target else ""
    there = targets.captured(kind, ids, layers or 0, case.version) if ids else []
    last = (layers - (0 if kind in targets.TO_THE_END else 1)) if layers else max(there, default=0)
    return [number for number, layer in zip(ids, there, strict=True) if not 0 <= layer <= last] if ids else []


def _meaning(case: Case, ids: list[Any], layers: int | None) -> str:
    """The ids, and which layers' inputs the server takes for them where that is another number."""
    if case.serving.engine == "vllm" or any(type(number) is not int for number in ids):
        return f"{KEY}: {ids}"
    kind = architecture(case.target.config) if case.target else ""
    there = targets.captured(kind, ids, layers or 0, case.version)
    return f"{KEY}: {ids}" + (
        f", which stand for the input of layers {there}, of 0 to {(layers or 0) - 1}" if there != ids else ""
    )


def _turned_off(case: Case) -> Iterator[Finding]:
    """The draft then gets one layer's states, and `fc` is skipped (srt/models/llama_eagle3.py:238, 0.5.23)."""
    if any(name.endswith("fc.weight") for name in case.draft.tensors):
        what = "use_aux_hidden_state is false: the draft gets one layer's states, and its fc is skipped"
        said = json.dumps(mapping(case.config, "eagle_config")["use_aux_hidden_state"])
        yield fail(what, f"config.json: eagle_config.use_aux_hidden_state: {said}", "make it true, or remove it")


def _count(case: Case, ids: list[Any], layers: int | None) -> Iterator[Finding]:
    """A layer's states are captured once, however often it is named, and `fc` fuses as many as it is wide. States as
    wide as the draft itself pass it by (`forward` in srt/models/llama_eagle3.py, 0.5.8 to 0.5.23). An `fc` that the
    class builds otherwise is refused before that, which the rule `shapes` tells.
    """
    tensor = next((tensor for name, tensor in case.draft.tensors.items() if name.endswith("fc.weight")), None)
    hidden = case.number("hidden_size")
    width = case.number("target_hidden_size") or hidden
    refused = case.trace and any(landing.how == "refused" for landing in case.trace.landings)
    if tensor is None or not width or len(tensor.shape) != 2 or tensor.shape[1] % width or refused:
        return
    if case.trace is None or case.trace.error:
        return
    layered = ids or ([2, layers // 2, layers - 3] if layers else [])
    fused, captured = tensor.shape[1] // width, len(set(layered)) or 3
    skipped = captured == 1 and width == hidden and case.serving.engine == "sglang"
    evidence = f"fc.weight {list(tensor.shape)}, {KEY}: {ids or f'none, which means {layered or 3}'}"
    remedy = "write the ids that the draft was trained with"
    if skipped:
        what = f"one aux layer is captured, fc fuses {fused}: {case.server} skips fc, as its states are wide enough"
        yield fail(what, evidence, remedy if fused > 1 else "train with three aux layers, or serve it with vLLM")
    elif fused != captured:
        what = f"{captured} aux layers are captured, fc fuses {fused}: the server will not start"
        yield fail(what, evidence, remedy, "will not start")


def _not_read(case: Case, layers: int | None) -> Iterator[Finding]:
    """Ids at the top level steer nothing in SGLang: its default is taken in silence (sgl-project/sglang#21274)."""
    top = top_aux_ids(case.config)
    if case.serving.engine != "sglang" or not top or aux_ids(case.config):
        return
    default = [2, layers // 2, layers - 3] if layers else []
    if top != default:
        what = f"aux layers {top} stand at the top level, where {case.server} does not read them: it takes its default"
        plain = "speculators_model_type" in case.config or top[0] in (1, 2)  # as deploy/host/counting.py decides
        remedy = "write them into eagle_config" + (": deploy ckpt fix" if plain else ", as SGLang counts them")
        yield warn(what, f"{KEY}: {top}; the default captures {default or '[2, n // 2, n - 3]'}", remedy)


def _counted_for_sglang(ids: list[Any], layers: int) -> Iterator[Finding]:
    """What tells that SGLang's count is meant: the embeddings for a layer, or SGLang's own default written out."""
    if 0 in ids or ids == [1, layers // 2 - 1, layers - 4]:
        what = f"aux layers {ids} look like SGLang's count, one lower than vLLM's: acceptance on vLLM would suffer"
        remedy = f"if the draft was trained for SGLang, write {[number + 1 for number in ids]} into a copy for vLLM"
        yield warn(what, f"eagle_config.{KEY}: {ids}", remedy)


def _counted_for_others(case: Case, ids: list[Any], layers: int) -> Iterator[Finding]:
    """Ids that are meant as they are, or that mean another layer by the version."""
    kind = architecture(case.target.config) if case.target else ""
    captured = targets.captured(kind, ids, layers, case.version)
    as_trained = [2, layers // 2, layers - 3]
    evidence = f"eagle_config.{KEY}: {ids}; {case.server} captures the input of layers {captured}"
    below = [number - 1 for number in ids]
    if ids == as_trained and captured != ids:
        what = f"aux layers {ids} look like the count of vLLM and Speculators, which is one higher"
        yield warn(what, evidence, f"if the draft was trained with the input of these layers, write {below}")
    elif kind in targets.AS_THEY_ARE and ids[0] not in {1, 2}:
        what = f"aux layers {ids} of this target mean one layer higher before 0.5.13 than since"
        yield warn(what, evidence, "ids that begin with 1 mean the same in every version")
