"""An EAGLE-3 draft of one layer as SGLang's LlamaForCausalLMEagle3 computes it, in plain torch; shapes of the pairs.

Module names are the checkpoint's. Needs torch and safetensors.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

HIDDEN, INTERMEDIATE = 128, 256
HEADS, KV_HEADS, HEAD_DIM = 4, 2, 32
VOCAB = 512
DRAFT_VOCAB = 256
POSITIONS = 2048


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class Attention(nn.Module):
    """Its input is twice as wide as its output: the token's embedding and the hidden state side by side."""

    def __init__(self, rope_theta: float) -> None:
        super().__init__()
        self.register_buffer("rope", rope(rope_theta), persistent=False)
        self.q_proj = nn.Linear(2 * HIDDEN, HEADS * HEAD_DIM, False)
        self.k_proj = nn.Linear(2 * HIDDEN, KV_HEADS * HEAD_DIM, False)
        self.v_proj = nn.Linear(2 * HIDDEN, KV_HEADS * HEAD_DIM, False)
        self.o_proj = nn.Linear(HEADS * HEAD_DIM, HIDDEN, False)

    def project(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, k, v with rotary positions: [B, HEADS, S, HEAD_DIM] each."""
        size, length, _ = x.shape
        q = self.q_proj(x).view(size, length, HEADS, HEAD_DIM).transpose(1, 2)
        k = self.k_proj(x).view(size, length, KV_HEADS, HEAD_DIM).transpose(1, 2)
        v = self.v_proj(x).view(size, length, KV_HEADS, HEAD_DIM).transpose(1, 2)
        group = HEADS // KV_HEADS
        turns = self.rope[:, positions]
        return rotate(q, turns), rotate(k, turns).repeat_interleave(group, 1), v.repeat_interleave(group, 1)


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(HIDDEN, INTERMEDIATE, False)
        self.up_proj = nn.Linear(HIDDEN, INTERMEDIATE, False)
        self.down_proj = nn.Linear(INTERMEDIATE, HIDDEN, False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, rope_theta: float) -> None:
        super().__init__()
        self.input_layernorm = Norm(HIDDEN)
        self.hidden_norm = Norm(HIDDEN)
        self.post_attention_layernorm = Norm(HIDDEN)
        self.self_attn = Attention(rope_theta)
        self.mlp = Mlp()


class Draft(nn.Module):
    def __init__(self, aux_layers: list[int], rope_theta: float) -> None:
        super().__init__()
        self.aux_layers, self.rope_theta = aux_layers, rope_theta
        self.fc = nn.Linear(len(aux_layers) * HIDDEN, HIDDEN, False)
        self.midlayer = Layer(rope_theta)
        self.norm = Norm(HIDDEN)
        self.lm_head = nn.Linear(HIDDEN, DRAFT_VOCAB, False)

    def forward(self, hidden: Tensor, embedded: Tensor, kv: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """One token further: hidden and embedded [B, S, HIDDEN] -> the next hidden states, and logits.

        The target's hidden states come side by side, and go through `fc` first: SGLang too tells by the width.
        `kv` has the keys and values of the steps before and gets this one's. As in serving, step n sees step 0's
        keys causally, and of each later step only the one at its own place.
        """
        layer = self.midlayer
        hidden = hidden if hidden.shape[-1] == HIDDEN else self.fc(hidden)
        x = torch.cat([layer.input_layernorm(embedded), layer.hidden_norm(hidden)], -1)
        size, length, _ = x.shape
        q, k, v = layer.self_attn.project(x, torch.arange(length) + len(kv))
        kv.append((k, v))
        scores = q @ kv[0][0].transpose(-1, -2) / HEAD_DIM**0.5
        scores = scores.masked_fill(torch.triu(torch.ones(length, length, dtype=torch.bool), 1), -1e9)
        own = [(q * key).sum(-1, keepdim=True) / HEAD_DIM**0.5 for key, _ in kv[1:]]
        weights = torch.cat([scores, *own], -1).softmax(-1)
        out = weights[..., :length] @ kv[0][1]
        for i, (_, value) in enumerate(kv[1:]):
            out = out + weights[..., length + i : length + i + 1] * value
        hidden = hidden + layer.self_attn.o_proj(out.transpose(1, 2).reshape(size, length, HEADS * HEAD_DIM))
        hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
        return hidden, self.lm_head(self.norm(hidden))


def rope(theta: float) -> Tensor:
    """Cosines and sines of each position: [2, POSITIONS, HEAD_DIM]."""
    inverse = 1.0 / (theta ** (torch.arange(0, HEAD_DIM, 2).float() / HEAD_DIM))
    angles = torch.outer(torch.arange(POSITIONS).float(), inverse)
    angles = torch.cat([angles, angles], -1)
    return torch.stack([angles.cos(), angles.sin()])


def rotate(x: Tensor, turns: Tensor) -> Tensor:
    """Rotary position embedding: `turns` are cosine and sine, [2, S, HEAD_DIM]."""
    half = HEAD_DIM // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], -1)
    return x * turns[0] + turned * turns[1]


def draft_vocabulary(ids: Tensor) -> tuple[Tensor, Tensor]:
    """The commonest tokens: d2t (target id minus draft id, for each draft id) and t2d (is this target id in it?)."""
    common = torch.sort(torch.topk(torch.bincount(ids, minlength=VOCAB), DRAFT_VOCAB).indices).values
    t2d = torch.zeros(VOCAB, dtype=torch.bool)
    t2d[common] = True
    return common - torch.arange(DRAFT_VOCAB), t2d


def draft_ids(d2t: Tensor) -> Tensor:
    """The draft's id of each target token; -1 where it has none: [VOCAB]."""
    ids = torch.full((VOCAB,), -1)
    ids[d2t + torch.arange(DRAFT_VOCAB)] = torch.arange(DRAFT_VOCAB)
    return ids


def save_draft(draft: Draft, d2t: Tensor, t2d: Tensor, folder: Path) -> None:
    weights = {name: tensor.detach().contiguous() for name, tensor in draft.state_dict().items()}
    save_file(weights | {"d2t": d2t, "t2d": t2d}, folder / "model.safetensors")
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": 1,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "max_position_embeddings": POSITIONS,
        "rms_norm_eps": 1e-6,
        "rope_theta": draft.rope_theta,
        "hidden_act": "silu",
        "vocab_size": VOCAB,
        "draft_vocab_size": DRAFT_VOCAB,
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "torch_dtype": "float32",
        "attention_bias": False,
        "mlp_bias": False,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": draft.aux_layers, "use_aux_hidden_state": True},
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1))
