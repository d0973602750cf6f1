"""Checkpoints that load in every version: where even these do not, `loadcheck` does not know the version, and whatever
else was refused says nothing of the checkpoint in question. A part of `loadcheck`.
"""

# Runs in the engine's own interpreter: standard library, Python 3.8 or newer.

from __future__ import annotations

from typing import Any

WIDTH, HEADS, WIDE = 64, 2, 96
TOKENS, ROWS = 128, 64  # of the target, of the draft
QUERY, LATENT, ROPE, NOPE, VALUE = 32, 32, 32, 32, 32  # of multi-head latent attention

CONFIG = {
    "hidden_size": WIDTH, "intermediate_size": WIDE, "num_attention_heads": HEADS, "num_key_value_heads": HEADS,
    "num_hidden_layers": 1, "vocab_size": TOKENS, "draft_vocab_size": ROWS, "rms_norm_eps": 1e-5, "hidden_act": "silu",
    "max_position_embeddings": 64, "torch_dtype": "float32", "tie_word_embeddings": False, "rope_theta": 10000.0,
}  # fmt: skip
LATENT_RANKS = {
    "q_lora_rank": QUERY, "kv_lora_rank": LATENT, "qk_nope_head_dim": NOPE, "qk_rope_head_dim": ROPE,
    "v_head_dim": VALUE,
}  # fmt: skip

# One tensor for each kind of parameter: plain, of the vocabulary, stacked, by rows, fused of two.
AROUND = {"fc.weight": (WIDTH, 3 * WIDTH), "norm.weight": (WIDTH,), "lm_head.weight": (ROWS, WIDTH)}
MLP = {
    "midlayer.mlp.gate_proj.weight": (WIDE, WIDTH),
    "midlayer.mlp.up_proj.weight": (WIDE, WIDTH),
    "midlayer.mlp.down_proj.weight": (WIDTH, WIDE),
}
ATTENTION = {
    "midlayer.self_attn.q_proj.weight": (WIDTH, 2 * WIDTH),
    "midlayer.self_attn.k_proj.weight": (WIDTH, 2 * WIDTH),
    "midlayer.self_attn.v_proj.weight": (WIDTH, 2 * WIDTH),
    "midlayer.self_attn.o_proj.weight": (WIDTH, WIDTH),
}
LATENT_ATTENTION = {
    "midlayer.self_attn.q_a_proj.weight": (QUERY, 2 * WIDTH),
    "midlayer.self_attn.kv_a_proj_with_mqa.weight": (LATENT + ROPE, 2 * WIDTH),
    "midlayer.self_attn.q_b_proj.weight": (HEADS * (NOPE + ROPE), QUERY),
}

LLAMA = ({"model_type": "llama"}, {**AROUND, **MLP, **ATTENTION})
HEALTHY: dict[str, Any] = {
    "LlamaForCausalLMEagle3": LLAMA,
    "Eagle3LlamaForCausalLM": LLAMA,
    "Eagle3DeepseekV2ForCausalLM": (
        {"model_type": "deepseek_v3", **LATENT_RANKS},
        {**AROUND, **MLP, **LATENT_ATTENTION},
    ),
}


def healthy(architecture: str) -> dict[str, Any]:
    """The question about it."""
    more, tensors = HEALTHY[architecture]
    return {
        "architecture": architecture,
        "config": {**CONFIG, **more},
        "tensors": {**{name: ["F32", list(shape)] for name, shape in tensors.items()}, "d2t": ["I64", [ROWS]]},
        "d2t": [0] * ROWS,
    }
