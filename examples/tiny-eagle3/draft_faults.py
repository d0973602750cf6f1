"""What can be wrong with an EAGLE-3 draft in the format of SGLang: each fault makes a broken checkpoint of a healthy.

Only the standard library is used, and the result is the same each time.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

Tensor = tuple[str, list[int], bytes]  # safetensors dtype, shape, little-endian data
Tensors = dict[str, Tensor]


# ---- safetensors: u64 header length, JSON header {name: {dtype, shape, data_offsets}}, data ----------------------


def read_safetensors(path: Path) -> Tensors:
    """Every tensor of a file, by name."""
    blob = path.read_bytes()
    start = 8 + struct.unpack_from("<Q", blob)[0]
    header = json.loads(blob[8:start])
    header.pop("__metadata__", None)
    return {
        name: (
            entry["dtype"],
            entry["shape"],
            blob[start + entry["data_offsets"][0] : start + entry["data_offsets"][1]],
        )
        for name, entry in header.items()
    }


def write_safetensors(path: Path, tensors: Tensors) -> None:
    """Write the tensors in the order given."""
    header, offset = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


@dataclass(frozen=True)
class Checkpoint:
    config: Mapping[str, Any]
    tensors: Tensors


Fault = Callable[[Checkpoint], Checkpoint]


# ---- tensors -------------------------------------------------------------------------------------------------------


def tensors(change: Callable[[Tensors], Tensors]) -> Fault:
    """A fault of the tensors alone."""
    return lambda healthy: replace(healthy, tensors=change(healthy.tensors))


def without(name: str) -> Callable[[Tensors], Tensors]:
    """Leave one tensor out."""
    return lambda tensors: {key: value for key, value in tensors.items() if key != name}


def layer_prefix(prefix: str) -> Callable[[Tensors], Tensors]:
    """Spell the layer's keys with another prefix than `midlayer.`."""
    return lambda tensors: {key.replace("midlayer.", prefix): value for key, value in tensors.items()}


def wrong_fc(tensors: Tensors) -> Tensors:
    """Let `fc` join two hidden states instead of three."""
    dtype, (rows, columns), data = tensors["fc.weight"]
    narrow, width = columns * 2 // 3, len(data) // rows
    cut = b"".join(data[row * width : row * width + width * 2 // 3] for row in range(rows))
    return tensors | {"fc.weight": (dtype, [rows, narrow], cut)}


def absolute_d2t(tensors: Tensors) -> Tensors:
    """Let `d2t` hold the target's token ids; the format wants their distance from the draft's ids."""
    dtype, shape, data = tensors["d2t"]
    ids = [index + offset for index, offset in enumerate(struct.unpack(f"<{shape[0]}q", data))]
    return tensors | {"d2t": (dtype, shape, struct.pack(f"<{shape[0]}q", *ids))}


def filled(prefix: str, value: float, suffix: str = "") -> Callable[[Tensors], Tensors]:
    """Let every float32 tensor whose name begins and ends so hold one value."""

    def fill(name: str, tensor: Tensor) -> Tensor:
        if not (name.startswith(prefix) and name.endswith(suffix)):
            return tensor
        dtype, shape, data = tensor
        return dtype, shape, struct.pack("<f", value) * (len(data) // 4)

    return lambda tensors: {name: fill(name, tensor) for name, tensor in tensors.items()}


def fresh(prefix: str, std: float) -> Callable[[Tensors], Tensors]:
    """Let every float32 matrix whose name begins so hold what it would before any training."""

    def made(tensors: Tensors) -> Tensors:
        rng = random.Random(0)
        new = {}
        for name, (dtype, shape, data) in tensors.items():
            if name.startswith(prefix) and len(shape) == 2:
                values = [rng.gauss(0, std) for _ in range(len(data) // 4)]
                new[name] = (dtype, shape, struct.pack(f"<{len(values)}f", *values))
        return tensors | new

    return made


def swapped(one: str, other: str) -> Callable[[Tensors], Tensors]:
    """Let two tensors bear each other's name."""
    names = {one: other, other: one}
    return lambda tensors: {name: tensors[names.get(name, name)] for name in tensors}


def with_bias(tensors: Tensors) -> Tensors:
    """A bias of ones for q, k and v: SGLang makes the draft's projections without, and drops it."""
    more = {}
    for name, (dtype, shape, _) in tensors.items():
        if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight")):
            more[name.replace("weight", "bias")] = (dtype, shape[:1], struct.pack("<f", 1.0) * shape[0])
    return tensors | more


def with_head_norms(tensors: Tensors) -> Tensors:
    """Norms of q and k, as Qwen3's layers have them: SGLang's draft has none, and drops them."""
    return tensors | {
        f"midlayer.self_attn.{name}_norm.weight": ("F32", [32], struct.pack("<f", 1.0) * 32) for name in "qk"
    }


# ---- config --------------------------------------------------------------------------------------------------------

AUX = "eagle_aux_hidden_state_layer_ids"


def config(**changes: Any) -> Fault:
    """A fault of the config alone: these keys get these values."""
    return lambda healthy: replace(healthy, config={**healthy.config, **changes})


def no_key(name: str) -> Fault:
    return lambda healthy: replace(healthy, config={key: value for key, value in healthy.config.items() if key != name})


def aux_layers(healthy: Checkpoint) -> list[int]:
    return list(healthy.config["eagle_config"][AUX])


def shifted_aux(healthy: Checkpoint) -> Checkpoint:
    """Each of the target's layers is taken one too early."""
    ids = [layer - 1 for layer in aux_layers(healthy)]
    return config(eagle_config={**healthy.config["eagle_config"], AUX: ids})(healthy)


def flat_aux(healthy: Checkpoint) -> Checkpoint:
    """The layer ids stand at the top of the config, as vLLM counts them; SGLang takes its default layers instead."""
    return no_key("eagle_config")(config(**{AUX: [layer + 1 for layer in aux_layers(healthy)]})(healthy))


def speculators(healthy: Checkpoint) -> Checkpoint:
    """As Speculators 0.9.0 saves a draft: its config, without a model_type, and its names of the layer's tensors."""
    own = {key: healthy.config[key] for key in ("draft_vocab_size", "tie_word_embeddings", "torch_dtype")}
    apart = {*own, "architectures", "eagle_config", "rope_theta"}
    layer = {key: value for key, value in healthy.config.items() if key not in apart}
    rope = {"rope_parameters": {"rope_type": "default", "rope_theta": healthy.config["rope_theta"]}}
    proposal = {"proposal_type": "greedy", "speculative_tokens": 3, "accept_tolerance": 0.0, "verifier_accept_k": 1}
    method = {"algorithm": "eagle3", "default_proposal_method": "greedy", "proposal_methods": [proposal]}
    verifier = {"name_or_path": "target", "architectures": ["LlamaForCausalLM"]}
    written = {
        "architectures": ["Eagle3DraftModel"],
        "speculators_model_type": "eagle3",
        "speculators_version": "0.9.0",
        **own,
        **dict.fromkeys(("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output"), False),
        "embed_requires_grad": False,
        AUX: [layer + 1 for layer in aux_layers(healthy)],
        "target_hidden_size": None,
        "transformer_layer_config": {**layer, **rope},
        "speculators_config": {**method, "verifier": verifier},
    }
    return Checkpoint(written, layer_prefix("layers.0.")(healthy.tensors))


def with_config(fault: Callable[[Tensors], Tensors], **changes: Any) -> Fault:
    return lambda healthy: config(**changes)(tensors(fault)(healthy))


# ---- all of them ---------------------------------------------------------------------------------------------------

NORM, HIDDEN_NORM = "midlayer.input_layernorm.weight", "midlayer.hidden_norm.weight"

FAULTS: dict[str, Fault] = {
    "no-d2t": tensors(without("d2t")),
    "no-lm-head": tensors(without("lm_head.weight")),
    "layers0": tensors(layer_prefix("layers.0.")),
    "unknown-prefix": tensors(layer_prefix("decoder.")),
    "wrong-fc": tensors(wrong_fc),
    "absolute-d2t": tensors(absolute_d2t),
    "model-layers0": tensors(layer_prefix("model.layers.0.")),
    "no-fc": tensors(without("fc.weight")),
    "swapped-norms": tensors(swapped(NORM, HIDDEN_NORM)),
    "nan-norm": tensors(filled("norm.", float("nan"))),
    "random-layer": tensors(fresh("midlayer.", 0.02)),
    "zero-layer": tensors(filled("midlayer.", 0.0, "_proj.weight")),
    "attention-bias": with_config(with_bias, attention_bias=True),
    "head-norms": tensors(with_head_norms),
    "shifted-aux": shifted_aux,
    "flat-aux": flat_aux,
    "rope-theta": config(rope_theta=10000.0),
    "null-target-hidden-size": config(target_hidden_size=None),
    "no-draft-vocab-size": no_key("draft_vocab_size"),
    "norm-before-residual": config(norm_before_residual=True),
    "speculators": speculators,
}
