"""Drafts for the rules of `ckpt check`: the trained one, changed in one way or several."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from packaging.version import Version

from deploy.checkpoint import facts as files
from deploy.checkpoint import loaders, rules
from deploy.checkpoint.facts import Facts, Tensor
from deploy.checkpoint.rules import Serving, Target
from deploy.findings import Finding

TINY = Path(__file__).parent.parent / "examples/tiny-eagle3"
GOOD = files.read(TINY / "draft")
TARGET: dict[str, Any] = json.loads((TINY / "target/config.json").read_text())
OLD, NEW, ANY = "0.5.11", "0.5.12.post1", None

Change = Callable[[Facts], Facts]


def found(facts: Facts, version: str | None, target: dict[str, Any] | None = None, **how: Any) -> list[Finding]:
    """What SGLang's rules say of it beside the tiny target."""
    how = {"algorithm": "EAGLE3", **how}
    return rules.judge(facts, Target(TARGET if target is None else target), Serving("sglang", version, **how))


def config(**keys: Any) -> Change:
    """Keys set; one that is ... is taken out."""
    return lambda facts: replace(facts, config={k: v for k, v in {**facts.config, **keys}.items() if v is not ...})


def aux(*ids: Any) -> Change:
    return config(eagle_config={"eagle_aux_hidden_state_layer_ids": list(ids)})


def renamed(rename: Callable[[str], str]) -> Change:
    return lambda facts: replace(facts, tensors={rename(name): tensor for name, tensor in facts.tensors.items()})


def without(*names: str) -> Change:
    return lambda facts: replace(facts, tensors={k: t for k, t in facts.tensors.items() if k not in names})


def shaped(name: str, *shape: int, dtype: str = "F32") -> Change:
    return lambda facts: replace(facts, tensors={**facts.tensors, name: Tensor(dtype, shape, 0, 0, "")})


def mapped(change: Callable[[list[int]], list[int]], *, t2d: bool = True) -> Change:
    return lambda facts: replace(facts, d2t=change(list(facts.d2t or [])), t2d=facts.t2d if t2d else None)


def both(*changes: Change) -> Change:
    def change(facts: Facts) -> Facts:
        for one in changes:
            facts = one(facts)
        return facts

    return change


def unchanged(facts: Facts) -> Facts:
    return facts


def layers0(name: str) -> str:
    return name.replace("midlayer.", "layers.0.")


def absolute(d2t: list[int]) -> list[int]:
    return [number + offset for number, offset in enumerate(d2t)]


def backwards(d2t: list[int]) -> list[int]:
    """The same targets in another order: healthy for the server."""
    return [target - number for number, target in enumerate(reversed(absolute(d2t)))]


LATENT_CONFIG: dict[str, Any] = {
    "architectures": ["Eagle3DeepseekV2ForCausalLM"],
    "model_type": "deepseek_v3",
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "vocab_size": 384,
    "draft_vocab_size": 128,
    "q_lora_rank": 48,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "max_position_embeddings": 4096,
    "hidden_act": "silu",
    "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 29, 57]},
}
KIMI: dict[str, Any] = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "text_config": {
        "model_type": "kimi_k2",
        "hidden_size": 64,
        "num_hidden_layers": 61,
        "vocab_size": 384,
        "kv_lora_rank": 32,
        "max_position_embeddings": 4096,
    },
}


def latent(spelled: Callable[[str], str] = lambda name: name) -> Facts:
    """A healthy draft of SGLang's latent class, without weights: its parameters in the checkpoint's own names."""
    loader = loaders.choose("sglang", "Eagle3DeepseekV2ForCausalLM", Version("0.5.23"))
    assert loader
    shapes = {name.removeprefix("model."): p.shape for name, p in loader.parameters(LATENT_CONFIG).items()}
    rows, columns = shapes.pop("midlayer.self_attn.fused_qkv_a_proj_with_mqa.weight")
    shapes |= {
        "midlayer.self_attn.q_a_proj.weight": (48, columns),
        "midlayer.self_attn.kv_a_proj_with_mqa.weight": (rows - 48, columns),
        "d2t": (128,),
    }
    for part in ("gate_proj", "up_proj"):
        shapes[f"midlayer.mlp.{part}.weight"] = (160, 64)
    for name in ("embed_tokens.weight", "midlayer.mlp.gate_up_proj.weight"):
        del shapes[name]
    tensors = {spelled(name): Tensor("I64" if name == "d2t" else "BF16", s, 0, 0, "") for name, s in shapes.items()}
    targets = range(0, 384, 3)
    offsets = [target - number for number, target in enumerate(targets)]
    return Facts("latent", tensors=tensors, config=LATENT_CONFIG, d2t=offsets, t2d=frozenset(targets))
