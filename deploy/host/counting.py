"""The ids of a draft's aux layers, as SGLang counts them. A part of `remedy.py`; reads nothing.

vLLM (0.33.0, models/llama_eagle3.py) and Speculators mean the input of a layer by its id, SGLang (models/llama.py,
`set_eagle3_layers_to_capture`, 0.5.8 to 0.5.23) its output, which is the input of the next: so 1 less. But some classes
take ids as they are since 0.5.13, unless the first is 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

IDS = "eagle_aux_hidden_state_layer_ids"
# Classes of targets that take ids as they are since 0.5.13 (models/deepseek_v2.py:3458-3473, glm4_moe_lite.py:805-820,
# 0.5.23; PR sgl-project/sglang#25454), and what inherits or holds these: glm4_moe.py:1284, mistral_large_3.py:12,
# kimi_k25.py.
AS_THEY_ARE = {
    *(f"{name}ForCausalLM" for name in "DeepseekV2 DeepseekV3 DeepseekV32 Glm4MoeLite GlmMoeDsa MistralLarge3".split()),
    "KimiK25ForConditionalGeneration",
}
SINCE = (0, 5, 13)


def counted(
    ids: list[Any], config: Mapping[str, Any], target: Mapping[str, Any] | None, version: tuple[int, ...]
) -> tuple[list[int], tuple[str, ...]]:
    """(the ids as SGLang counts, or else a refusal) of ids at the top level of a draft's config.

    In a config that Speculators did not write they may be counted in either way: vLLM's usual ones begin with 2,
    SGLang's with 1.
    """
    if not all(type(number) is int for number in ids):
        return [], ("the aux layers are no whole numbers", f"{IDS}: {ids}", "write what it was trained with")
    raw = "speculators_model_type" in config
    if not raw and ids[0] == 1 and not _beyond(ids, target):
        return list(ids), ()
    family = _class_of(config, target)
    if not raw and ids[0] not in (1, 2):
        what = "how the aux layers are counted, as SGLang does or as vLLM does, cannot be told"
        written, _ = _for(family, ids, version)
        meant = f": {written}, if it was trained with the input of layers {ids}" if written else ", as SGLang counts"
        return [], (what, f"{IDS}: {ids}, at the top level", f"write eagle_config.{IDS} yourself{meant}")
    return _for(family, ids, version)


def _beyond(ids: list[int], target: Mapping[str, Any] | None) -> bool:
    """Whether SGLang's count would ask for the output of the last layer, which hardly a target hands out."""
    inner = (target or {}).get("text_config")
    layers = (inner if isinstance(inner, dict) else target or {}).get("num_hidden_layers")
    return type(layers) is int and max(ids) >= layers - 1


def _for(name: str, ids: list[int], version: tuple[int, ...]) -> tuple[list[int], tuple[str, ...]]:
    less, evidence = [number - 1 for number in ids], f"{IDS}: {ids}, as vLLM counts"
    if ids[0] == 2:  # the first is 1 then, which all of them raise
        return less, ()
    if not name:
        return [], ("which aux layers are to be written depends on the target", evidence, "say --target PATH")
    if name not in AS_THEY_ARE:
        return less, ()
    if not version:
        what = "which aux layers are to be written depends on the server's version"
        return [], (what, evidence, "say --for sglang==VERSION")
    if version >= SINCE and ids[0] == 1:
        what = "no ids make this server capture these aux layers: it adds 1 to all of them where the first is 1"
        return [], (what, evidence, "serve it with vLLM")
    return (list(ids), ()) if version >= SINCE else (less, ())


def _class_of(config: Mapping[str, Any], target: Mapping[str, Any] | None) -> str:
    """The target's class; of a Speculators folder its verifier's."""
    verifier = config.get("speculators_config")
    verifier = verifier.get("verifier") if isinstance(verifier, dict) else None
    classes = (target or (verifier if isinstance(verifier, dict) else {})).get("architectures")
    first = classes[0] if isinstance(classes, list) and classes else classes
    return first if isinstance(first, str) else ""
