"""A draft's config.json as SGLang reads it, out of one that Speculators, vLLM or a person wrote. Reads nothing.

A part of `remedy.py`. Sources: speculators 0.9.0, config of the saved model; vLLM 0.33.0,
transformers_utils/configs/speculators/algos.py; SGLang 0.5.8 to 0.5.23, models/llama_eagle3.py `__init__`,
models/kimi_k25_eagle3.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deploy.host.counting import IDS, counted

LLAMA = "LlamaForCausalLMEagle3"
NOT_SGLANGS = {None, "Eagle3DraftModel", "Eagle3Speculator", "Eagle3LlamaForCausalLM", "LlamaForCausalLM"}
SPECULATORS = {
    "speculators_model_type", "speculators_version", "speculators_config", "transformer_layer_config", "auto_map",
    "embed_requires_grad",
}  # fmt: skip
DEAD_IF_NULL = ("target_hidden_size", "num_aux_hidden_states", "eagle_config")  # read, and not looked at


@dataclass
class Conversion:
    """The config as it should be, how many layers the draft has, and what is to be said of it."""

    config: dict[str, Any]
    layers: int = 1
    notes: list[str] = field(default_factory=list)
    refusals: list[tuple[str, ...]] = field(default_factory=list)


def converted(
    facts: Any, tensors: Mapping[str, Any], target: Mapping[str, Any] | None, engine: str, version: Sequence[int]
) -> Conversion:
    """`tensors` by their portable names. A config that is meant for vLLM loses the nulls that kill, and no more; one of
    Speculators, which vLLM knows, or none at all, stays as it is.
    """
    old = dict(facts.config)
    found = Conversion(old)
    if engine == "vllm":
        if "speculators_model_type" not in old:
            found.config = _alive(old)
        return found
    if "speculators_model_type" in old:
        found.config = _hoisted(old, found)
    found.layers = _layers(found.config, tensors)
    _refuse(found, tensors)
    _needs(found, tensors, tuple(version))
    if not old:
        found.notes.append("there is no config.json beside the weights, and no server starts without one")
        return found
    found.config = _alive(found.config)
    _class(found, tensors)
    _rope(found)
    _aux_layers(old, found, tensors, target, tuple(version))
    _vocabulary(found, tensors)
    return found


def _alive(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if value is not None or key not in DEAD_IF_NULL}


def _hoisted(old: dict[str, Any], found: Conversion) -> dict[str, Any]:
    """One level, as transformers wants it; nulls left out, which Speculators writes where it means "as usual"."""
    kind, inner = old["speculators_model_type"], old.get("transformer_layer_config")
    if kind != "eagle3" or not isinstance(inner, dict):
        what = f"this is a Speculators folder of kind {kind!r}, not one of an EAGLE-3 draft with its layer's config"
        found.refusals.append((what, "config.json: speculators_model_type", "serve it with vLLM"))
        return dict(old)
    if old.get("embed_requires_grad"):
        found.notes.append("its embeddings were trained, and SGLang takes the target's: acceptance may be lower")
    if "norm_before_residual" not in old:
        found.notes.append("norm_before_residual is not said: vLLM takes it for true, which SGLang cannot do")
    layer = {key: value for key, value in inner.items() if key not in {"auto_map", "architectures", "model_type"}}
    own = {key: value for key, value in old.items() if key not in SPECULATORS | {"architectures", "model_type"}}
    own = {key: value for key, value in own.items() if value is not None or key == "draft_vocab_size"}
    layer = {key: value for key, value in layer.items() if value is not None and not key.startswith("_")}
    return {"architectures": [LLAMA], "model_type": "llama", **layer, **own}


def _layers(config: Mapping[str, Any], tensors: Mapping[str, Any]) -> int:
    numbers = [name.split(".")[1] for name in tensors if name.startswith("layers.")]
    said = config.get("num_hidden_layers")
    return max([1, *(int(number) + 1 for number in numbers if number.isdigit()), said if type(said) is int else 1])


def _refuse(found: Conversion, tensors: Mapping[str, Any]) -> None:
    """What SGLang computes in another way, whatever is written into the config."""
    if found.config.get("norm_before_residual"):
        why = "config.json: norm_before_residual: true. SGLang always keeps the states before the norm as the residual"
        remedy = "train with norm_before_residual: false, or serve it with vLLM"
        found.refusals.append(("the draft was trained with norm_before_residual", why, remedy))
    kinds = [
        (("q_norm.", "k_norm."), "its attention normalizes q and k, and SGLang drops these weights", "serve with vLLM"),
        (
            ("q_proj.bias", "k_proj.bias", "v_proj.bias"),
            "its attention has biases, and SGLang drops them",
            "train without",
        ),
    ]
    for marks, what, remedy in kinds:
        names = [name for name in tensors if any(mark in name for mark in marks)]
        if names:
            found.refusals.append((what, ", ".join(names[:4]), remedy))


def _needs(found: Conversion, tensors: Mapping[str, Any], version: tuple[int, ...]) -> None:
    """What servers can do only since some version: refused for an older one, told where none is named."""
    config = found.config
    window = config.get("sliding_window")
    kinds = config.get("layer_types")
    slides = "sliding_attention" in kinds if isinstance(kinds, list) else config.get("use_sliding_window", True)
    layers = f"its {found.layers} layers" if found.layers > 1 else ""
    table = [
        (any(name.startswith("input_norm.") for name in tensors), "input_norm", (0, 5, 18)),
        (any(name.startswith("fc_norm.") for name in tensors), "fc_norm", (0, 5, 12)),
        (bool(config.get("norm_output")), "norm_output", (0, 5, 12)),
        (bool(layers), layers, (0, 5, 12)),
        (bool(window and slides), f"its window of {window} tokens", (0, 5, 12)),
    ]
    for there, what, since in table:
        if there and version and version < since:
            words = ".".join(map(str, since))
            found.refusals.append((f"{what}: SGLang can do that since {words} only", "", f"upgrade it to {words}"))
        elif there and not version:
            found.notes.append(f"{what}: needs SGLang {'.'.join(map(str, since))} or newer")
    if window and slides:
        found.notes.append(
            f"start the server with --speculative-draft-window-size {window}: it does not read the config"
        )


def _class(found: Conversion, tensors: Mapping[str, Any]) -> None:
    config, classes = found.config, found.config.get("architectures")
    name = classes[0] if isinstance(classes, list) and classes else classes
    if any("kv_a_proj" in tensor for tensor in tensors):
        return  # an MLA draft, of another class, whose config cannot be guessed
    if not isinstance(name, (str, type(None))) or name in NOT_SGLANGS:
        config["architectures"] = [LLAMA]
    if config["architectures"] == [LLAMA] and not config.get("model_type"):
        config["model_type"] = "llama"


def _rope(found: Conversion) -> None:
    """Both spellings: transformers 4 reads rope_theta and rope_scaling, transformers 5 rope_parameters."""
    config = found.config
    for key in ("rope_parameters", "rope_scaling"):
        inner = config.get(key)
        if isinstance(inner, dict) and None in inner.values():  # a null beta_fast is taken for a number, and kills
            config[key] = {name: value for name, value in inner.items() if value is not None}
    rope = config.get("rope_parameters")
    if not isinstance(rope, dict) or rope.get("rope_theta") is None:
        return
    theta = rope["rope_theta"]
    if config.get("rope_theta", theta) != theta:
        why = f"rope_theta: {config['rope_theta']}, rope_parameters.rope_theta: {theta}"
        found.refusals.append(("which rope theta it was trained with cannot be told", why, "remove the wrong one"))
        return
    config["rope_theta"] = theta
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default" and not config.get("rope_scaling"):
        config["rope_scaling"] = {key: value for key, value in rope.items() if key != "rope_theta"}


def _aux_layers(
    old: Mapping[str, Any],
    found: Conversion,
    tensors: Mapping[str, Any],
    target: Mapping[str, Any] | None,
    version: tuple[int, ...],
) -> None:
    """SGLang reads the ids in `eagle_config` alone."""
    config, top = found.config, found.config.get(IDS)
    nested = config.get("eagle_config")
    eagle = dict(nested) if isinstance(nested, dict) else {}
    if isinstance(top, list) and top and not eagle.get(IDS):
        ids, refusal = counted(top, old, target, version)
        if refusal:
            found.refusals.append(refusal)
            return
        del config[IDS]
        eagle = {**eagle, IDS: ids, "use_aux_hidden_state": True}
    if "speculators_model_type" in old:
        eagle.setdefault("use_aux_hidden_state", True)
    fc, hidden = tensors.get("fc.weight"), config.get("target_hidden_size") or config.get("hidden_size")
    wide = fc is not None and len(fc.shape) == 2 and type(hidden) is int and fc.shape[1] > hidden
    if wide and eagle.get("use_aux_hidden_state") is False:
        eagle["use_aux_hidden_state"] = True  # or fc, which fuses several layers, is skipped in silence
    if eagle:
        config["eagle_config"] = eagle


def _vocabulary(found: Conversion, tensors: Mapping[str, Any]) -> None:
    """`draft_vocab_size` must be there; null means the target's own head (models/llama_eagle3.py `__init__`)."""
    config, head = found.config, tensors.get("lm_head.weight")
    size, whole = config.get("draft_vocab_size"), config.get("vocab_size")
    if config.get("tie_word_embeddings"):
        config.setdefault("draft_vocab_size", whole)
    elif head is None and "d2t" not in tensors and size in (None, whole):
        config["draft_vocab_size"] = None  # a number would leave the head at random in the MLA class, in silence
    elif head is None and size is not None:
        why = f"draft_vocab_size: {size} of {whole}; there is no lm_head.weight"
        found.refusals.append(("the draft has no head for its own vocabulary", why, "save lm_head.weight with it"))
    elif head is not None and size is None and len(head.shape) == 2:
        rows = head.shape[0]
        if "draft_vocab_size" not in config or rows != whole:
            config["draft_vocab_size"] = rows
