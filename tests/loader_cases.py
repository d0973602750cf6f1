"""Tiny checkpoints, as names, dtypes and shapes, in every spelling and fault that drafts are found with.

A case is what `deploy/host/loadcheck.py` is asked: {"architecture", "config", "tensors", "d2t"}. Widths differ from one
another wherever they can, so that no shape fits by chance.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

LLAMA, MLA = "LlamaForCausalLMEagle3", "Eagle3DeepseekV2ForCausalLM"
HIDDEN, WIDE, HEADS, KEYS, VOCABULARY, DRAFT = 64, 160, 4, 2, 384, 128
HEAD = HIDDEN // HEADS
QUERY, LATENT, ROPE, NOPE, VALUE = 48, 32, 8, 16, 24  # MLA: ranks and widths of a head

Question = dict[str, Any]
Tensors = dict[str, list[Any]]


def bf16(*shape: int) -> list[Any]:
    return ["BF16", list(shape)]


def config(architecture: str = LLAMA, /, **more: Any) -> dict[str, Any]:
    """The draft's config.json. A key given as `...` is left out."""
    made: dict[str, Any] = {
        "architectures": [architecture],
        "hidden_size": HIDDEN,
        "intermediate_size": WIDE,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KEYS,
        "num_hidden_layers": 1,
        "vocab_size": VOCABULARY,
        "draft_vocab_size": DRAFT,
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "torch_dtype": "bfloat16",
        "tie_word_embeddings": False,
        "model_type": "llama",
    }
    if architecture == MLA:
        made |= {
            "model_type": "deepseek_v3",
            "num_key_value_heads": HEADS,
            "q_lora_rank": QUERY,
            "kv_lora_rank": LATENT,
            "qk_rope_head_dim": ROPE,
            "qk_nope_head_dim": NOPE,
            "v_head_dim": VALUE,
            "rope_scaling": None,
        }
    return {key: value for key, value in (made | more).items() if value is not ...}


def layer(prefix: str, width: int = 2 * HIDDEN) -> Tensors:
    """A decoder layer of the Llama kind; `width` goes into its attention."""
    return {
        f"{prefix}self_attn.q_proj.weight": bf16(HEADS * HEAD, width),
        f"{prefix}self_attn.k_proj.weight": bf16(KEYS * HEAD, width),
        f"{prefix}self_attn.v_proj.weight": bf16(KEYS * HEAD, width),
        f"{prefix}self_attn.o_proj.weight": bf16(HIDDEN, HEADS * HEAD),
        f"{prefix}mlp.gate_proj.weight": bf16(WIDE, HIDDEN),
        f"{prefix}mlp.up_proj.weight": bf16(WIDE, HIDDEN),
        f"{prefix}mlp.down_proj.weight": bf16(HIDDEN, WIDE),
        f"{prefix}input_layernorm.weight": bf16(HIDDEN),
        f"{prefix}hidden_norm.weight": bf16(HIDDEN),
        f"{prefix}post_attention_layernorm.weight": bf16(HIDDEN),
    }


def mla_layer(prefix: str) -> Tensors:
    """A decoder layer with multi-head latent attention."""
    attention = f"{prefix}self_attn."
    return {
        **{name: entry for name, entry in layer(prefix).items() if "self_attn" not in name},
        f"{attention}q_a_proj.weight": bf16(QUERY, 2 * HIDDEN),
        f"{attention}q_a_layernorm.weight": bf16(QUERY),
        f"{attention}q_b_proj.weight": bf16(HEADS * (NOPE + ROPE), QUERY),
        f"{attention}kv_a_proj_with_mqa.weight": bf16(LATENT + ROPE, 2 * HIDDEN),
        f"{attention}kv_a_layernorm.weight": bf16(LATENT),
        f"{attention}kv_b_proj.weight": bf16(HEADS * (NOPE + VALUE), LATENT),
        f"{attention}o_proj.weight": bf16(HIDDEN, HEADS * VALUE),
    }


def rest(prefix: str = "", head: str = "") -> Tensors:
    """What stands around the layer."""
    return {
        f"{prefix}fc.weight": bf16(HIDDEN, 3 * HIDDEN),
        f"{prefix}norm.weight": bf16(HIDDEN),
        f"{head}lm_head.weight": bf16(DRAFT, HIDDEN),
        "d2t": ["I64", [DRAFT]],
        "t2d": ["BOOL", [VOCABULARY]],
    }


def ask(tensors: Tensors, architecture: str = LLAMA, /, **settings: Any) -> Question:
    return {
        "architecture": architecture,
        "config": config(architecture, **settings),
        "tensors": tensors,
        "d2t": list(range(DRAFT)) if any("d2t" in name for name in tensors) else None,
    }


def llama(change: Callable[[Tensors], object] = lambda _: None, /, **settings: Any) -> Question:
    """The healthy draft in the portable spelling, then changed."""
    tensors = {**layer("midlayer."), **rest()}
    change(tensors)
    return ask(tensors, LLAMA, **settings)


def mla(change: Callable[[Tensors], object] = lambda _: None, /, **settings: Any) -> Question:
    tensors = {**mla_layer("midlayer."), **rest()}
    change(tensors)
    return ask(tensors, MLA, **settings)


def without(*parts: str) -> Callable[[Tensors], object]:
    """Leave out every tensor whose name has one of the parts."""
    return lambda tensors: [tensors.pop(name) for name in list(tensors) if any(part in name for part in parts)]


def also(**more: list[Any]) -> Callable[[Tensors], object]:
    """Add tensors; `__` stands for a dot."""
    return lambda tensors: tensors.update({name.replace("__", "."): entry for name, entry in more.items()})


def renamed(old: str, new: str) -> Callable[[Tensors], object]:
    def change(tensors: Tensors) -> None:
        for name in list(tensors):
            tensors[name.replace(old, new)] = tensors.pop(name)

    return change


def all_of(*changes: Callable[[Tensors], object]) -> Callable[[Tensors], object]:
    return lambda tensors: [change(tensors) for change in changes]


def two_layers(spelling: str) -> Tensors:
    return {**layer(f"{spelling}.0."), **layer(f"{spelling}.1.", HIDDEN), **rest()}


QKV = "midlayer__self_attn__"
STACKED_QKV = all_of(
    without("q_proj", "k_proj", "v_proj"),
    also(midlayer__self_attn__qkv_proj__weight=bf16((HEADS + 2 * KEYS) * HEAD, 2 * HIDDEN)),
)
STACKED_MLP = all_of(without("gate_proj", "up_proj"), also(midlayer__mlp__gate_up_proj__weight=bf16(2 * WIDE, HIDDEN)))
AUX_NORMS = also(
    aux_norm_low__weight=bf16(HIDDEN), aux_norm_mid__weight=bf16(HIDDEN), aux_norm_high__weight=bf16(HIDDEN)
)
FC_NORMS = also(fc_norm__0__weight=bf16(HIDDEN), fc_norm__1__weight=bf16(HIDDEN), fc_norm__2__weight=bf16(HIDDEN))
INPUT_NORM = also(input_norm__weight=bf16(3 * HIDDEN))
BIASES = also(
    midlayer__self_attn__q_proj__bias=bf16(HEADS * HEAD),
    midlayer__self_attn__k_proj__bias=bf16(KEYS * HEAD),
    midlayer__self_attn__v_proj__bias=bf16(KEYS * HEAD),
    midlayer__self_attn__o_proj__bias=bf16(HIDDEN),
)
QK_NORMS = also(midlayer__self_attn__q_norm__weight=bf16(HEAD), midlayer__self_attn__k_norm__weight=bf16(HEAD))
FOUR_AUX = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 5, 7]}}
WIDE_FC = also(fc__weight=bf16(HIDDEN, 4 * HIDDEN))

CASES: Mapping[str, Question] = {
    # spellings
    "midlayer": llama(),
    "layers.0": ask({**layer("layers.0."), **rest()}),
    "model.midlayer": ask({**layer("model.midlayer."), **rest("model.")}),
    "model.layers.0": ask({**layer("model.layers.0."), **rest("model.")}),
    "model. before lm_head too": ask({**layer("model.midlayer."), **rest("model.", "model.")}),
    "unknown prefix": ask({**layer("decoder."), **rest()}),
    "draft_model. before all": ask({**layer("draft_model.midlayer."), **rest("draft_model.", "draft_model.")}),
    "eagle_module. before the layer": ask({**layer("eagle_module.midlayer."), **rest()}),
    "midlayer within a longer word": ask({**layer("my_midlayer."), **rest()}),
    "both spellings at once": ask({**layer("layers.0."), **layer("midlayer."), **rest()}),
    "qkv stacked": llama(STACKED_QKV),
    "gate_up stacked": llama(STACKED_MLP),
    "qkv stacked, of a wrong size": llama(
        all_of(STACKED_QKV, also(midlayer__self_attn__qkv_proj__weight=bf16(HEADS * HEAD, 2 * HIDDEN)))
    ),
    "with embeddings": llama(also(embed_tokens__weight=bf16(VOCABULARY, HIDDEN))),
    "with model. embeddings": llama(also(model__embed_tokens__weight=bf16(VOCABULARY, HIDDEN))),
    "embeddings of another vocabulary": llama(also(embed_tokens__weight=bf16(VOCABULARY + 64, HIDDEN))),
    # norms around fc
    "aux_norm": llama(AUX_NORMS, use_aux_norm=True),
    "aux_norm, not asked for": llama(AUX_NORMS),
    "fc_norm": llama(FC_NORMS, fc_norm=True),
    "fc_norm, of which one is missing": llama(all_of(FC_NORMS, without("fc_norm.1")), fc_norm=True),
    "model.fc_norm": llama(all_of(FC_NORMS, renamed("fc_norm", "model.fc_norm")), fc_norm=True),
    "input_norm": llama(INPUT_NORM, norm_before_fc=True),
    "input_norm, nested": llama(INPUT_NORM, eagle_config={"norm_before_fc": True}),
    "input_norm, not asked for": llama(INPUT_NORM),
    "input_norm, missing": llama(norm_before_fc=True),
    # fc
    "four aux layers": llama(WIDE_FC, **FOUR_AUX),
    "four aux layers by number": llama(WIDE_FC, num_aux_hidden_states=4),
    "four aux layers at the top level": llama(WIDE_FC, eagle_aux_hidden_state_layer_ids=[1, 3, 5, 7]),
    "an empty list of aux layers": llama(eagle_config={"eagle_aux_hidden_state_layer_ids": []}),
    "eagle_config null": llama(eagle_config=None),
    "fc of a wrong width": llama(also(fc__weight=bf16(HIDDEN, HIDDEN))),
    "fc with a bias": llama(also(fc__bias=bf16(HIDDEN)), bias=True),
    "fc with a bias, not asked for": llama(also(fc__bias=bf16(HIDDEN))),
    "fc with a bias, missing": llama(bias=True),
    "no fc": llama(without("fc.")),
    "a target of another width": llama(also(fc__weight=bf16(HIDDEN, 3 * 96)), target_hidden_size=96),
    "target_hidden_size null": llama(target_hidden_size=None),
    # what other families have
    "attention biases": llama(BIASES, attention_bias=True),
    "q_norm and k_norm": llama(QK_NORMS),
    "mlp biases": llama(also(midlayer__mlp__down_proj__bias=bf16(HIDDEN)), mlp_bias=True),
    "rotary leftovers": llama(also(midlayer__self_attn__rotary_emb__inv_freq=["F32", [HEAD // 2]])),
    "extra tensors": llama(also(scale=["F32", []], head__bias=bf16(DRAFT), lm_head__bias=bf16(DRAFT))),
    "head_dim of its own": llama(
        all_of(
            also(
                midlayer__self_attn__q_proj__weight=bf16(HEADS * 24, 2 * HIDDEN),
                midlayer__self_attn__k_proj__weight=bf16(KEYS * 24, 2 * HIDDEN),
                midlayer__self_attn__v_proj__weight=bf16(KEYS * 24, 2 * HIDDEN),
                midlayer__self_attn__o_proj__weight=bf16(HIDDEN, HEADS * 24),
            )
        ),
        head_dim=24,
    ),
    # missing and misshapen
    "no q_proj": llama(without("q_proj")),
    "no up_proj": llama(without("up_proj")),
    "no hidden_norm": llama(without("hidden_norm")),
    "no norms": llama(without("norm.weight")),
    "no last norm": llama(lambda tensors: tensors.pop("norm.weight")),
    "no layer": ask(rest()),
    "no tensors at all": ask({}),
    "q_proj of single width": llama(also(midlayer__self_attn__q_proj__weight=bf16(HEADS * HEAD, HIDDEN))),
    "k_proj of too many heads": llama(also(midlayer__self_attn__k_proj__weight=bf16(HEADS * HEAD, 2 * HIDDEN))),
    "down_proj turned": llama(also(midlayer__mlp__down_proj__weight=bf16(WIDE, HIDDEN))),
    "down_proj too narrow": llama(also(midlayer__mlp__down_proj__weight=bf16(HIDDEN, WIDE // 2))),
    "o_proj too narrow": llama(also(midlayer__self_attn__o_proj__weight=bf16(HIDDEN, HIDDEN // 2))),
    "o_proj too wide": llama(also(midlayer__self_attn__o_proj__weight=bf16(HIDDEN, 2 * HIDDEN))),
    "gate_proj too short": llama(also(midlayer__mlp__gate_proj__weight=bf16(WIDE // 2, HIDDEN))),
    "v_proj too short": llama(also(midlayer__self_attn__v_proj__weight=bf16(HEAD, 2 * HIDDEN))),
    "gate_proj too tall": llama(also(midlayer__mlp__gate_proj__weight=bf16(2 * WIDE, HIDDEN))),
    "norm of a wrong width": llama(also(norm__weight=bf16(2 * HIDDEN))),
    "a norm of one number": llama(also(norm__weight=bf16(1))),
    "float32 in a bfloat16 model": llama(also(fc__weight=["F32", [HIDDEN, 3 * HIDDEN]])),
    # head and vocabulary
    "no lm_head": llama(without("lm_head")),
    "no lm_head, draft_vocab_size null": llama(without("lm_head", "d2t", "t2d"), draft_vocab_size=None),
    "lm_head, draft_vocab_size null": llama(
        all_of(without("d2t", "t2d"), also(lm_head__weight=bf16(VOCABULARY, HIDDEN))), draft_vocab_size=None
    ),
    "draft_vocab_size absent": llama(draft_vocab_size=...),
    "draft_vocab_size of another number": llama(draft_vocab_size=2 * DRAFT),
    "draft vocabulary not a multiple of 64": llama(
        also(lm_head__weight=bf16(100, HIDDEN), d2t=["I64", [100]]), draft_vocab_size=100
    ),
    "tied embeddings": llama(tie_word_embeddings=True),
    "no d2t": llama(without("d2t")),
    "model.d2t": llama(renamed("d2t", "model.d2t")),
    "d2t in a longer name": llama(renamed("d2t", "draft.d2t_map")),
    "d2t of floats": llama(also(d2t=["F32", [DRAFT]])),
    "d2t too short": llama(also(d2t=["I64", [DRAFT // 2]])),
    "d2t of one number": llama(also(d2t=["I64", []])),
    "d2t of two axes": llama(also(d2t=["I64", [DRAFT, HIDDEN]])),
    "d2t as a column": llama(also(d2t=["I64", [DRAFT, 1]])),
    "mla d2t of two axes": mla(also(d2t=["I64", [DRAFT, HIDDEN]])),
    "model.t2d": llama(renamed("t2d", "model.t2d")),
    # layers
    "two layers": ask(two_layers("layers"), num_hidden_layers=2),
    "two layers, one of them in the files": ask({**layer("layers.0."), **rest()}, num_hidden_layers=2),
    "two layers in the files, one in the config": ask(two_layers("model.layers")),
    "no layers in the config": llama(num_hidden_layers=0),
    # config that does not start
    "model_type absent": llama(model_type=...),
    "model_type unknown": llama(model_type="eagle9"),
    "hidden_size absent": llama(hidden_size=...),
    "heads that do not divide": llama(num_attention_heads=5),
    # multi-head latent attention
    "mla midlayer": mla(),
    "mla layers.0": ask({**mla_layer("layers.0."), **rest()}, MLA),
    "mla model.midlayer": ask({**mla_layer("model.midlayer."), **rest("model.")}, MLA),
    "mla model.layers.0": ask({**mla_layer("model.layers.0."), **rest("model.")}, MLA),
    "mla unknown prefix": ask({**mla_layer("decoder."), **rest()}, MLA),
    "mla model. before lm_head": ask({**mla_layer("midlayer."), **rest("", "model.")}, MLA),
    "mla layers.1": ask({**mla_layer("layers.0."), **mla_layer("layers.1."), **rest()}, MLA),
    "mla both spellings at once": ask({**mla_layer("layers.0."), **mla_layer("midlayer."), **rest()}, MLA),
    "mla a half more": mla(also(layers__0__self_attn__q_a_proj__weight=bf16(QUERY, 2 * HIDDEN))),
    "mla halves without a length": mla(
        also(midlayer__self_attn__q_a_proj__weight=bf16(), midlayer__self_attn__kv_a_proj_with_mqa__weight=bf16())
    ),
    "mla halves of other widths under an unknown prefix": mla(
        all_of(also(x__q_a_proj__weight=bf16(QUERY, HIDDEN), x__kv_a_proj_with_mqa__weight=bf16(LATENT, 2 * HIDDEN)))
    ),
    "mla no q_a_proj": mla(without("q_a_proj")),
    "mla no kv_a_proj": mla(without("kv_a_proj")),
    "mla fused already": mla(
        all_of(
            without("q_a_proj", "kv_a_proj"),
            also(midlayer__self_attn__fused_qkv_a_proj_with_mqa__weight=bf16(QUERY + LATENT + ROPE, 2 * HIDDEN)),
        )
    ),
    "mla q_a_proj of single width": mla(also(midlayer__self_attn__q_a_proj__weight=bf16(QUERY, HIDDEN))),
    "mla q_a_proj too tall": mla(also(midlayer__self_attn__q_a_proj__weight=bf16(QUERY + 8, 2 * HIDDEN))),
    "mla kv_b_proj of integers": mla(
        also(midlayer__self_attn__kv_b_proj__weight=["I8", [HEADS * (NOPE + VALUE), LATENT]])
    ),
    "mla gate_up stacked": mla(STACKED_MLP),
    "mla fc_norm": mla(FC_NORMS, fc_norm=True),
    "mla fc_norm, not asked for": mla(FC_NORMS),
    "mla no lm_head": mla(without("lm_head")),
    "mla no lm_head, draft_vocab_size null": mla(without("lm_head", "d2t", "t2d"), draft_vocab_size=None),
    "mla draft_vocab_size absent": mla(without("lm_head", "d2t", "t2d"), draft_vocab_size=...),
    "mla model.d2t": mla(renamed("d2t", "model.d2t")),
    "mla d2t in a longer name": mla(renamed("d2t", "draft.d2t_map")),
    "mla with embeddings": mla(also(embed_tokens__weight=bf16(VOCABULARY, HIDDEN))),
    "mla with model. embeddings": mla(also(model__embed_tokens__weight=bf16(VOCABULARY, HIDDEN))),
    "mla four aux layers": mla(WIDE_FC, **FOUR_AUX),
    "mla four aux layers at the top level": mla(WIDE_FC, eagle_aux_hidden_state_layer_ids=[1, 3, 5, 7]),
    "mla four aux layers by number": mla(WIDE_FC, num_aux_hidden_states=4),
    "mla fc of a wrong width": mla(also(fc__weight=bf16(HIDDEN, HIDDEN))),
    "mla target_hidden_size null": mla(target_hidden_size=None),
    "mla a target of another width": mla(also(fc__weight=bf16(HIDDEN, 3 * 96)), target_hidden_size=96),
    "mla two layers": mla(num_hidden_layers=2),
    "mla no q_lora_rank": mla(q_lora_rank=None),
    "mla tied embeddings": mla(tie_word_embeddings=True),
    "mla fc with a bias": mla(also(fc__bias=bf16(HIDDEN)), bias=True),
    "mla q_norm": mla(QK_NORMS),
    "mla of a llama's tensors": ask({**layer("midlayer."), **rest()}, MLA),
    "a llama of mla tensors": ask({**mla_layer("midlayer."), **rest()}),
}

FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}

# What says nothing of the checkpoint: (question, words of the reason).
ODD: Mapping[str, tuple[Question, str]] = {
    "a dtype that torch does not know": (llama(also(fc__weight=["F3", [HIDDEN, 3 * HIDDEN]])), "dtype F3"),
    "quantised, and not as its config says": (
        llama(also(fc__weight=bf16(1, 1)), quantization_config=FP8),
        "quantised: without a GPU this cannot be tried",
    ),
    "code in its config": (
        llama(model_type="eagle9", auto_map={"AutoConfig": "configuration_eagle.Config"}),
        "brings code along",
    ),
    "a class without a control": (
        ask({}, "LlamaForCausalLM", hidden_size="wide"),
        "no healthy checkpoint of that class is known here",
    ),
}

PARTS = [
    ".weight",
    ".bias",
    "model.",
    "midlayer.",
    "layers.0.",
    "layers.1.",
    "self_attn.",
    "mlp.",
    "q_proj",
    "gate_proj",
]
PARTS += ["fc_norm.0", "aux_norm_low", "d2t", "t2d", "norm", "fc", "lm_head", "kv_a_proj_with_mqa", "q_a_proj", "x"]
SETTINGS: list[dict[str, Any]] = [
    {"bias": True}, {"attention_bias": True}, {"fc_norm": True}, {"use_aux_norm": True}, {"norm_before_fc": True},
    {"num_hidden_layers": 2}, {"draft_vocab_size": None}, {"draft_vocab_size": 100}, {"tie_word_embeddings": True},
    {"target_hidden_size": 96}, {"num_aux_hidden_states": 2}, {"num_key_value_heads": 1}, {"head_dim": 32},
    {"eagle_config": {"norm_before_fc": False, "eagle_aux_hidden_state_layer_ids": [1, 2]}}, {"intermediate_size": 96},
    {"eagle_aux_hidden_state_layer_ids": [1, 2]}, {"hidden_size": 128}, {"fc_norm": False, "use_aux_norm": None},
]  # fmt: skip


def strange(seed: int) -> Question:
    """A draft with a few things changed at random: names, shapes, tensors that come and go, the config."""
    chance = random.Random(seed)
    architecture = chance.choice([LLAMA, MLA])
    made = layer if architecture == LLAMA else mla_layer
    prefix = chance.choice(["midlayer.", "layers.0.", "model.layers.0.", "model.midlayer."])
    tensors = {**made(prefix), **rest("model." if prefix.startswith("model.") else "")}
    for change in [AUX_NORMS, FC_NORMS, INPUT_NORM, STACKED_QKV, STACKED_MLP, BIASES, QK_NORMS]:
        if chance.random() < 0.15:
            change(tensors)
    for _ in range(chance.randrange(4)):
        name = chance.choice(list(tensors))
        dtype, shape = tensors[name]
        match chance.randrange(4):
            case 0:
                del tensors[name]
            case 1:
                old = chance.choice([part for part in PARTS if part in name] or [""])
                tensors[name.replace(old, chance.choice(PARTS), 1)] = tensors.pop(name)
            case 2:
                tensors[name] = [dtype, [max(1, int(length * chance.choice([0.5, 1, 1, 2]))) for length in shape]]
            case 3:
                tensors[chance.choice(PARTS) + name] = [dtype, shape]
    settings: dict[str, Any] = {}
    for _ in range(chance.choice([0, 0, 1, 1, 2])):
        settings |= chance.choice(SETTINGS)
    for name in [name for name in tensors if "q_a_proj" in name and "kv_a_proj" in name]:
        del tensors[name]  # of both halves at once nobody can say anything
    return ask(tensors, architecture, **settings)
