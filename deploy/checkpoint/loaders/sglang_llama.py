"""SGLang's `LlamaForCausalLMEagle3`: srt/models/llama_eagle3.py, read in 0.5.8, 0.5.11, 0.5.12.post1, 0.5.18, 0.5.23.

Its layer is `midlayer` up to 0.5.11 and `layers.N` since 0.5.12, which takes the old names as well. Whatever it does
not know it drops, and whatever it does not get stays as it was made; it says neither. Shapes are checked or cut in
srt/layers/linear.py (QKVParallelLinear, MergedColumnParallelLinear, RowParallelLinear: `weight_loader`) and
srt/model_loader/weight_utils.py (`default_weight_loader`).
"""

from __future__ import annotations

from functools import partial

from deploy.checkpoint.config import Config, aux_ids, mapping, number
from deploy.checkpoint.loaders import MOST, Loader, Parameter, sized, unsized

ARCHITECTURE = "LlamaForCausalLMEagle3"
DEFAULTS = {  # transformers' LlamaConfig, where config.json leaves them out
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
}
STACKED = (
    (r"\.q_proj", ".qkv_proj", "q"),
    (r"\.k_proj", ".qkv_proj", "k"),
    (r"\.v_proj", ".qkv_proj", "v"),
    (r"\.gate_proj", ".gate_up_proj", "0"),
    (r"\.up_proj", ".gate_up_proj", "1"),
)
LEGACY = (
    ("midlayer", "layers.0"),
    ("aux_norm_low", "fc_norm.0"),
    ("aux_norm_mid", "fc_norm.1"),
    ("aux_norm_high", "fc_norm.2"),
)


def size(config: Config, key: str) -> int:
    """A size of the config, or transformers' own."""
    return sized(config, key, DEFAULTS)


def layer(config: Config, prefix: str, *, first: bool) -> dict[str, Parameter]:
    """The parameters of one decoder layer; the first takes embeddings and hidden states side by side."""
    hidden, wide, heads = (size(config, key) for key in ("hidden_size", "intermediate_size", "num_attention_heads"))
    head = number(config, "head_dim") or hidden // heads
    rows, keys = head * heads, head * (number(config, "num_key_value_heads") or heads)
    shards = {"q": rows, "k": keys, "v": keys}
    found = {
        "self_attn.qkv_proj.weight": Parameter((rows + 2 * keys, hidden * (2 if first else 1)), shards, cut=0),
        "self_attn.o_proj.weight": Parameter((hidden, rows), cut=1, pads=True),
        "mlp.gate_up_proj.weight": Parameter((2 * wide, hidden), {"0": wide, "1": wide}, cut=0, pads=True),
        "mlp.down_proj.weight": Parameter((hidden, wide), cut=1, pads=True),
        "input_layernorm.weight": Parameter((hidden,)),
        "hidden_norm.weight": Parameter((hidden,)),
        "post_attention_layernorm.weight": Parameter((hidden,)),
    }
    if config.get("attention_bias") or config.get("bias"):  # qkv is built anew, without one
        found["self_attn.o_proj.bias"] = Parameter((hidden,))
    return {f"{prefix}.{name}": parameter for name, parameter in found.items()}


def aux_layers(config: Config) -> int:
    """How many layers `fc` fuses since 0.5.12: as said, else as many as ids are named, else 3."""
    said = number(config, "num_aux_hidden_states")
    return (len(aux_ids(config)) or 3) if said is None else said


def head(config: Config) -> dict[str, Parameter]:
    """The head of its own; with tied embeddings it is the embeddings."""
    if config.get("tie_word_embeddings"):
        return {}
    rows = number(config, "draft_vocab_size")
    return {"lm_head.weight": Parameter((size(config, "vocab_size") if rows is None else rows, hidden(config)))}


def hidden(config: Config) -> int:
    return size(config, "hidden_size")


def _old(config: Config) -> dict[str, Parameter]:
    return {**_around(config, 3), **layer(config, "model.midlayer", first=True), **head(config)}


def _new(config: Config, *, input_norm: bool) -> dict[str, Parameter]:
    count = min(aux_layers(config), MOST)
    found = _around(config, count)
    width = number(config, "target_hidden_size") or hidden(config)
    if config.get("fc_norm") or config.get("use_aux_norm"):
        found |= {f"model.fc_norm.{index}.weight": Parameter((width,)) for index in range(count)}
    if input_norm and mapping(config, "eagle_config").get("norm_before_fc", config.get("norm_before_fc")):
        found["model.input_norm.weight"] = Parameter((width * count,))
    for index in range(min(size(config, "num_hidden_layers"), MOST)):
        found |= layer(config, f"model.layers.{index}", first=index == 0)
    return {**found, **head(config)}


def _around(config: Config, count: int) -> dict[str, Parameter]:
    """What lies around the layers: embeddings, the fusion of `count` hidden states, the last norm."""
    wide = (number(config, "target_hidden_size") or hidden(config)) * count
    found = {
        "model.embed_tokens.weight": Parameter((size(config, "vocab_size"), hidden(config))),
        "model.fc.weight": Parameter((hidden(config), wide)),
        "model.norm.weight": Parameter((hidden(config),)),
    }
    return {**found, "model.fc.bias": Parameter((hidden(config),))} if config.get("bias") else found


def _stops(config: Config, *, one_layer: bool) -> str:
    if "draft_vocab_size" not in config:
        return "'LlamaConfig' object has no attribute 'draft_vocab_size'"
    if "target_hidden_size" in config and config["target_hidden_size"] is None:
        return "target_hidden_size is null, and is multiplied by the number of aux layers"
    nested = config.get("eagle_config")
    if not one_layer and nested and not isinstance(nested, dict):  # before, whatever it was counted for nothing
        return f"eagle_config is {nested!r:.40}, which is no object"
    if one_layer and size(config, "num_hidden_layers") != 1:
        return f"EAGLE3 currently only supports 1 layer, num_hidden_layers is {size(config, 'num_hidden_layers')}"
    if config.get("hidden_act", "silu") != "silu":
        return f"Unsupported activation: {config['hidden_act']!r:.40}. Only silu is supported for now."
    sizes = [*DEFAULTS, *(key for key in ("draft_vocab_size", "head_dim", "num_key_value_heads") if config.get(key))]
    return unsized(config, *sizes, "target_hidden_size")


ROW = partial(Loader, "sglang", (ARCHITECTURE,), stacked=STACKED)
NEW = partial(ROW, stops=partial(_stops, one_layer=False), renames=LEGACY)
LOADERS = (
    ROW(
        versions="<0.5.12",
        source="srt/models/llama_eagle3.py:229-270, sglang 0.5.8",
        parameters=_old,
        stops=partial(_stops, one_layer=True),
    ),
    NEW(
        versions=">=0.5.12,<0.5.18",
        source="srt/models/llama_eagle3.py, sglang 0.5.12.post1",
        parameters=partial(_new, input_norm=False),
    ),
    NEW(
        versions=">=0.5.18",
        source="srt/models/llama_eagle3.py:325-378, sglang 0.5.23",
        parameters=partial(_new, input_norm=True),
    ),
)
