"""vLLM's `Eagle3LlamaForCausalLM`: model_executor/models/llama_eagle3.py, read in 0.32.0 and 0.33.0, tried in 0.32.0.

It puts `model.` before every name but the head's, takes `midlayer.` for `layers.0.`, and stops at a name that it does
not know, unless it is a bias (models/utils.py). It is silent about a parameter that it misses, as SGLang is.
"""

from __future__ import annotations

from deploy.checkpoint.config import Config, mapping, number
from deploy.checkpoint.loaders import MOST, Loader, Parameter, unsized
from deploy.checkpoint.loaders.sglang_llama import DEFAULTS, STACKED, aux_layers, hidden, layer, size

NAMES = ("LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM")


def _parameters(config: Config) -> dict[str, Parameter]:
    count = min(aux_layers(config), MOST)
    width, rows = number(config, "target_hidden_size") or hidden(config), number(config, "draft_vocab_size")
    rows = size(config, "vocab_size") if rows is None else rows
    found = {
        "model.embed_tokens.weight": Parameter((size(config, "vocab_size"), hidden(config))),
        "model.norm.weight": Parameter((hidden(config),)),
        "lm_head.weight": Parameter((rows, hidden(config))),
        "draft_id_to_target_id": Parameter((rows,)),
    }
    if mapping(config, "eagle_config").get("use_aux_hidden_state", True):
        found["model.fc.weight"] = Parameter((hidden(config), width * count))
        if config.get("fc_norm"):
            found |= {f"model.fc_norm.{index}.weight": Parameter((width,)) for index in range(count)}
        if mapping(config, "eagle_config").get("norm_before_fc", config.get("norm_before_fc")):
            found["model.input_norm.weight"] = Parameter((width * count,))
    for index in range(min(size(config, "num_hidden_layers"), MOST)):
        found |= _layer(config, f"model.layers.{index}", first=index == 0)
    return found


def _layer(config: Config, prefix: str, *, first: bool) -> dict[str, Parameter]:
    found = layer(config, prefix, first=first)
    if config.get("attention_bias"):
        whole = found[f"{prefix}.self_attn.qkv_proj.weight"]
        found[f"{prefix}.self_attn.qkv_proj.bias"] = Parameter(whole.shape[:1], whole.shards, cut=0)
    if config.get("mlp_bias"):
        whole = found[f"{prefix}.mlp.gate_up_proj.weight"]
        found[f"{prefix}.mlp.gate_up_proj.bias"] = Parameter(whole.shape[:1], whole.shards, cut=0)
        found[f"{prefix}.mlp.down_proj.bias"] = Parameter((hidden(config),))
    return found


def _stops(config: Config) -> str:
    if "target_hidden_size" in config and config["target_hidden_size"] is None:
        return "target_hidden_size is null, and is multiplied by the number of aux layers"
    sizes = [*DEFAULTS, *(key for key in ("draft_vocab_size", "head_dim", "num_key_value_heads") if config.get(key))]
    return unsized(config, *sizes, "target_hidden_size")


LOADERS = (
    Loader(
        "vllm",
        NAMES,
        ">=0.32,<0.34",
        "model_executor/models/llama_eagle3.py:288-460, vllm 0.33.0",
        _parameters,
        _stops,
        renames=((r"midlayer\.", "layers.0."),),
        vocabulary_map=("^d2t$", "draft_id_to_target_id"),
        ignored=r"t2d|mask_hidden|rotary_emb\.|(^|\.)verifier_(norm|lm_head)\.",
        stacked=STACKED,
        prefix="always",
        bare="lm_head",
        unknown="refused",
        borrows_head=True,
    ),
)
