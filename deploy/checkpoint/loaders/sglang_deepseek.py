"""SGLang's `Eagle3DeepseekV2ForCausalLM`, a draft with DeepSeek's latent attention, for Kimi-K2.x:
srt/models/kimi_k25_eagle3.py, read in 0.5.12.post1, 0.5.18 and 0.5.23; before 0.5.12 there is no such class.

It puts `model.` before every name, so one that has it already is not known, which it says in a warning. The two halves
of the fused projection must both be there: one alone is lost without a word.
"""

from __future__ import annotations

from functools import partial

from deploy.checkpoint.config import Config, aux_ids, mapping, number, top_aux_ids
from deploy.checkpoint.loaders import MOST, Loader, Parameter, sized, unsized

ARCHITECTURE = "Eagle3DeepseekV2ForCausalLM"
DEFAULTS = {  # transformers' DeepseekV3Config, where config.json leaves them out
    "vocab_size": 129280,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
}
LAYER = "model.midlayer"


def size(config: Config, key: str) -> int:
    """A size of the config, or transformers' own."""
    return sized(config, key, DEFAULTS)


def aux_layers(config: Config) -> int:
    """How many layers `fc` fuses: as many as ids are named, nested or at the top, else 3."""
    nested = mapping(config, "eagle_config").get("eagle_aux_hidden_state_layer_ids")
    if nested is None and config.get("eagle_aux_hidden_state_layer_ids") is None:
        return 3
    return len(aux_ids(config) if nested is not None else top_aux_ids(config))


def _parameters(config: Config, *, fc_norm: bool) -> dict[str, Parameter]:
    hidden, vocabulary = size(config, "hidden_size"), size(config, "vocab_size")
    width, count = number(config, "target_hidden_size") or hidden, min(aux_layers(config), MOST)
    # a plain Linear in 0.5.12; since, split by columns
    fc = Parameter((hidden, width * count), cut=0 if fc_norm else None)
    found = {
        "model.embed_tokens.weight": Parameter((vocabulary, hidden)),
        "model.fc.weight": fc,
        "model.norm.weight": Parameter((hidden,)),
        **{f"{LAYER}.{name}": parameter for name, parameter in _layer(config, hidden).items()},
    }
    if config.get("bias"):
        found["model.fc.bias"] = Parameter((hidden,), cut=0 if fc_norm else None)
    if fc_norm and (config.get("fc_norm") or config.get("use_aux_norm")):
        found |= {f"model.fc_norm.{index}.weight": Parameter((width,)) for index in range(count)}
    if not config.get("tie_word_embeddings"):
        rows = number(config, "draft_vocab_size")
        found["lm_head.weight"] = Parameter((vocabulary if rows is None else rows, hidden))
    return found


def _layer(config: Config, hidden: int) -> dict[str, Parameter]:
    heads, wide = size(config, "num_attention_heads"), size(config, "intermediate_size")
    q_rank, kv_rank = size(config, "q_lora_rank"), size(config, "kv_lora_rank")
    rope, nope, values = (size(config, key) for key in ("qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"))
    return {
        "self_attn.fused_qkv_a_proj_with_mqa.weight": Parameter((q_rank + kv_rank + rope, 2 * hidden)),
        "self_attn.q_a_layernorm.weight": Parameter((q_rank,)),
        "self_attn.q_b_proj.weight": Parameter((heads * (nope + rope), q_rank), cut=0),
        "self_attn.kv_a_layernorm.weight": Parameter((kv_rank,)),
        "self_attn.kv_b_proj.weight": Parameter((heads * (nope + values), kv_rank), cut=0),
        "self_attn.o_proj.weight": Parameter((hidden, heads * values), cut=1, pads=True),
        "mlp.gate_up_proj.weight": Parameter((2 * wide, hidden), {"0": wide, "1": wide}, cut=0, pads=True),
        "mlp.down_proj.weight": Parameter((hidden, wide), cut=1, pads=True),
        "input_layernorm.weight": Parameter((hidden,)),
        "hidden_norm.weight": Parameter((hidden,)),
        "post_attention_layernorm.weight": Parameter((hidden,)),
    }


def _stops(config: Config) -> str:
    if "q_lora_rank" in config and config["q_lora_rank"] is None:
        return "Eagle3 MLA layer requires q_lora_rank in the draft config"
    if size(config, "num_hidden_layers") != 1:
        return f"EAGLE3 currently only supports 1 layer, num_hidden_layers is {size(config, 'num_hidden_layers')}"
    if config.get("hidden_act", "silu") != "silu":
        return f"Unsupported activation: {config['hidden_act']!r:.40}. Only silu is supported for now."
    return unsized(config, *DEFAULTS, *(key for key in ("draft_vocab_size", "target_hidden_size") if config.get(key)))


ROW = partial(
    Loader,
    "sglang",
    (ARCHITECTURE,),
    stops=_stops,
    vocabulary_map=(r"(^|\.)d2t$", "hot_token_id"),
    ignored=r"(^|\.)t2d$",
    renames=((r"^layers\.0\.", "midlayer."),),
    stacked=((r"\.gate_proj", ".gate_up_proj", "0"), (r"\.up_proj", ".gate_up_proj", "1")),
    halves=(
        ("q_a_proj", "fused_qkv_a_proj_with_mqa", "q_a"),
        ("kv_a_proj_with_mqa", "fused_qkv_a_proj_with_mqa", "kv_a"),
    ),
    prefix="always",
    unknown="warned",
    derives="w_kc and w_vc",
)
LOADERS = (
    ROW(
        versions=">=0.5.12,<0.5.13",
        source="srt/models/kimi_k25_eagle3.py, sglang 0.5.12.post1",
        parameters=partial(_parameters, fc_norm=False),
    ),
    ROW(
        versions=">=0.5.13",
        source="srt/models/kimi_k25_eagle3.py:377-451, sglang 0.5.23",
        parameters=partial(_parameters, fc_norm=True),
    ),
)
