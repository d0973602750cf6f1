"""vLLM's `Eagle3LlamaForCausalLM`: model_executor/models/llama_eagle3.py, the same file in 0.32.0 and 0.33.0.

It puts `model.` before every name but the head's and the map's, takes `midlayer.` for `layers.0.`, and stops at a name
that it does not know, unless it is the bias of a module that is there (models/utils.py `AutoWeightsLoader`). It is
silent about a parameter that it misses, as SGLang is. The embeddings and the head are the target's where no tensor is
named for them, not where one was refused (`process_eagle_weight` there; v1/spec_decode/llm_base_proposer.py). The map
is there where the draft's vocabulary is not the target's, and is a parameter as any: made of zeros, of one length.
"""

from __future__ import annotations

from dataclasses import replace

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
    }
    if rows != size(config, "vocab_size"):  # the target's, which is the draft's own
        found["draft_id_to_target_id"] = Parameter((rows,))
    if mapping(config, "eagle_config").get("use_aux_hidden_state", True):
        found["model.fc.weight"] = Parameter((hidden(config), width * count))
        if config.get("fc_norm"):
            found |= {f"model.fc_norm.{index}.weight": Parameter((width,)) for index in range(count)}
        if _norm_before_fc(config):
            found["model.input_norm.weight"] = Parameter((width * count,))
    for index in range(min(size(config, "num_hidden_layers"), MOST)):
        found |= _layer(config, f"model.layers.{index}", first=index == 0)
    return found


def _layer(config: Config, prefix: str, *, first: bool) -> dict[str, Parameter]:
    found = {name: replace(parameter, pads=False) for name, parameter in layer(config, prefix, first=first).items()}
    if config.get("attention_bias"):
        whole = found[f"{prefix}.self_attn.qkv_proj.weight"]
        found[f"{prefix}.self_attn.qkv_proj.bias"] = Parameter(whole.shape[:1], whole.shards, cut=0)
    if config.get("mlp_bias"):
        whole = found[f"{prefix}.mlp.gate_up_proj.weight"]
        found[f"{prefix}.mlp.gate_up_proj.bias"] = Parameter(whole.shape[:1], whole.shards, cut=0)
        found[f"{prefix}.mlp.down_proj.bias"] = Parameter((hidden(config),))
    return found


def _norm_before_fc(config: Config) -> bool:
    return bool(mapping(config, "eagle_config").get("norm_before_fc", config.get("norm_before_fc")))


def _unasked(config: Config) -> str:
    """What `load_weights` throws away by the config: a norm of the fused states, their fusion."""
    parts = [] if _norm_before_fc(config) else [r"input_norm\."]
    parts += [] if mapping(config, "eagle_config").get("use_aux_hidden_state", True) else [r"fc\."]
    return "|".join(parts)


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
        "model_executor/models/llama_eagle3.py:281-470, vllm 0.32.0",
        _parameters,
        _stops,
        renames=((r"midlayer\.", "layers.0."),),
        vocabulary_map=("^d2t$", "draft_id_to_target_id"),
        counts_up=False,
        ignored=r"t2d|mask_hidden|rotary_(pos_)?emb\.inv_freq|rotary_emb\.(cos|sin)_cached",
        unasked=_unasked,
        stacked=STACKED,
        prefix="always",
        bare="lm_head",
        unknown="refused",
        borrows_head=True,
    ),
)
