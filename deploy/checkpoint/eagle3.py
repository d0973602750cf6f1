"""SGLang's class `LlamaForCausalLMEagle3` as data: which parameters it has for a config, and where tensors go.

The layer is `midlayer` up to 0.5.11 (the old generation) and `layers.N` since 0.5.12 (the new one, which takes both
spellings). Parameters are named in the portable spelling, which every version knows.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

PROJECTIONS = [f"self_attn.{name}_proj.weight" for name in "qkvo"] + [
    f"mlp.{name}_proj.weight" for name in ("gate", "up", "down")
]
NORMS = [f"{name}.weight" for name in ("input_layernorm", "hidden_norm", "post_attention_layernorm")]
FUSED = {"self_attn.qkv_proj.weight": PROJECTIONS[:3], "mlp.gate_up_proj.weight": PROJECTIONS[4:6]}  # saved stacked
LAYER = [*PROJECTIONS, *NORMS, *FUSED]

Generation = Literal["old", "new"]


def place(name: str, generation: Generation, config: Mapping[str, Any]) -> str | None:
    """Where the loader puts a tensor, in the portable spelling; None: dropped (models/llama_eagle3.py load_weights)."""
    if "d2t" in name or "t2d" in name:
        return "d2t" if "d2t" in name else "t2d"
    if generation == "new":
        for index, legacy in enumerate(("low", "mid", "high")):
            name = name.replace(f"aux_norm_{legacy}", f"fc_norm.{index}")
        name = name.replace("midlayer", "layers.0").replace("layers.0.", "midlayer.", 1)
    name = re.sub(r"^model\.(?!lm_head)", "", name)
    return name if name in parameters(generation, config) else None


def parameters(generation: Generation, config: Mapping[str, Any]) -> set[str]:
    """Parameters of the class, stacked ones both whole and in their parts."""
    names = {"embed_tokens.weight", "fc.weight", "norm.weight", "lm_head.weight"}
    names |= {f"midlayer.{part}" for part in LAYER}
    if config.get("bias"):
        names.add("fc.bias")
    if generation == "old":
        return names
    names |= {f"layers.{layer}.{part}" for layer in range(1, layers(config)) for part in LAYER}
    if config.get("fc_norm") or config.get("use_aux_norm"):
        names |= {f"fc_norm.{index}.weight" for index in range(aux_layers(generation, config))}
    if mapping(config, "eagle_config").get("norm_before_fc", config.get("norm_before_fc")):
        names.add("input_norm.weight")  # since 0.5.18
    return names


def unfilled(generation: Generation, config: Mapping[str, Any], there: Collection[str | None]) -> set[str]:
    """Parameters for which no tensor is `there`, under portable names; the embeddings are the target's."""
    needed = parameters(generation, config) - {"embed_tokens.weight"}
    for whole, parts in FUSED.items():
        filled = {name for name in needed if name.endswith(whole) and name in there}
        needed -= {name.replace(whole, part) for name in filled for part in parts}
        needed = {name for name in needed if not name.endswith(whole)}
    return {name for name in needed if name not in there}


def shapes(generation: Generation, config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Shapes by portable name; what config.json leaves open is left out."""
    hidden, wide = number(config, "hidden_size"), number(config, "intermediate_size")
    heads = number(config, "num_attention_heads")
    if hidden is None or wide is None or not heads:
        return {}
    head = number(config, "head_dim") or hidden // heads
    keys = head * (number(config, "num_key_value_heads") or heads)
    fused = aux_layers(generation, config) * (number(config, "target_hidden_size") or hidden)
    found = {"fc.weight": (hidden, fused), "norm.weight": (hidden,), "input_norm.weight": (fused,)}
    rows = number(config, "draft_vocab_size") or number(config, "vocab_size")
    if rows is not None and not config.get("tie_word_embeddings"):
        found["lm_head.weight"] = (rows, hidden)
    for layer in range(layers(config)):
        prefix, width = (f"layers.{layer}", hidden) if layer else ("midlayer", 2 * hidden)
        rows_in = [(head * heads, width), (keys, width), (keys, width), (hidden, head * heads)]
        found |= dict(
            zip(
                (f"{prefix}.{part}" for part in PROJECTIONS),
                [*rows_in, (wide, hidden), (wide, hidden), (hidden, wide)],
                strict=True,
            )
        )
        found |= {f"{prefix}.{part}": (hidden,) for part in NORMS}
    return found


def aux_layers(generation: Generation, config: Mapping[str, Any]) -> int:
    """How many layers `fc` fuses: always 3 in the old generation."""
    if generation == "old":
        return 3
    return number(config, "num_aux_hidden_states") or len(aux_ids(config)) or 3


def layers(config: Mapping[str, Any]) -> int:
    """Layers of the draft; a number beyond belief is as good as some."""
    return min(max(number(config, "num_hidden_layers") or 1, 1), 64)


def map_kind(
    d2t: Sequence[int], t2d: frozenset[int] | None, vocabulary: int | None
) -> Literal["offsets", "absolute", "neither"]:
    """By t2d where it is there, as sets, since a healthy map may be unsorted; else by range and by how it grows."""
    targets = [number + offset for number, offset in enumerate(d2t)]
    if t2d is not None:
        return "offsets" if set(targets) == t2d else "absolute" if set(d2t) == t2d else "neither"

    def possible(ids: Sequence[int]) -> bool:
        inside = vocabulary is None or max(ids, default=0) < vocabulary
        return inside and min(ids, default=0) >= 0 and len(set(ids)) == len(ids)

    if possible(targets) == possible(d2t):
        return "neither"
    return "offsets" if possible(targets) else "absolute"


def portable(name: str) -> str:
    """The spelling that every version knows; `hooks/fix_eagle3_keys` writes the same."""
    return re.sub(r"^layers\.0\.", "midlayer.", re.sub(r"^model\.", "", name))


def number(config: Mapping[str, Any], key: str) -> int | None:
    """A whole number of the config; None where there is none, or something else."""
    value = config.get(key)
    return value if type(value) is int else None


def mapping(config: Mapping[str, Any], key: str) -> dict[str, Any]:
    """A mapping of the config; an empty one where there is none, or something else."""
    value = config.get(key)
    return value if isinstance(value, dict) else {}


def aux_ids(config: Mapping[str, Any]) -> list[Any]:
    """Nested only: ids at the top level do not steer the capture (model_executor/model_runner.py)."""
    ids = mapping(config, "eagle_config").get("eagle_aux_hidden_state_layer_ids")
    return ids if isinstance(ids, list) else []
