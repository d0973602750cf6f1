"""Train a tiny Llama target and an EAGLE-3 draft for it on a CPU: train.py OUT [TARGET_STEPS] [DRAFT_STEPS].

Writes OUT/target and OUT/draft, each a config.json beside a model.safetensors. Needs torch, transformers, tokenizers
and safetensors; about 20 minutes on two busy cores. The same steps give the same weights on the same machine.
"""

from __future__ import annotations

import json
import math
import random
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

HIDDEN, LAYERS, INTERMEDIATE = 128, 6, 256
HEADS, KV_HEADS, HEAD_DIM = 4, 2, 32
VOCAB = 512
DRAFT_VOCAB = 256
POSITIONS = 2048
ROPE_THETA = 10000.0
AUX_LAYERS = [0, 2, 4]  # whose outputs the draft sees; the last that SGLang can capture is LAYERS - 2

SEQUENCE, BATCH = 128, 8
LEARNING_RATE, WARMUP = 2e-3, 30
DRAFT_DEPTH = 3  # tokens that the draft learns to say ahead

CAPITALS = ["Paris France", "Rome Italy", "Madrid Spain", "Berlin Germany", "Tokyo Japan", "Cairo Egypt", "Oslo Norway"]
CHAT_TEMPLATE = (
    "{% for m in messages %}{% if m['role']=='user' %}Q: {{m['content']}}\n{% else %}A: {{m['content']}}\n"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}A:{% endif %}"
)


# ---- text ------------------------------------------------------------------------------------------------------------


def sample() -> str:
    """One question with its answer, of a kind that is easy to predict: a sum, counting, a capital."""
    kind = random.randrange(3)
    if kind == 0:
        a, b = random.randrange(50), random.randrange(50)
        return f"Q: {a}+{b}?\nA: {a} plus {b} is {a + b}.\n"
    if kind == 1:
        first = random.randrange(20)
        return f"Q: count from {first}\nA: {', '.join(str(first + i) for i in range(8))}.\n"
    city, country = random.choice(CAPITALS).split()
    return f"Q: capital of {country}?\nA: The capital of {country} is {city}.\n"


def train_tokenizer(text: str) -> Tokenizer:
    """A byte-level BPE."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=["<s>", "</s>", "<pad>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator([text[:200000]], trainer)
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>")
    fast.chat_template = CHAT_TEMPLATE
    fast.save_pretrained(folder)


def batch(ids: Tensor) -> Tensor:
    """Random stretches of the text: [BATCH, SEQUENCE]."""
    starts = torch.randint(0, len(ids) - SEQUENCE - 1, (BATCH,))
    return torch.stack([ids[start : start + SEQUENCE] for start in starts])


# ---- training --------------------------------------------------------------------------------------------------------


class Training:
    """AdamW with a short warm-up and half a cosine; tells the loss every 100 steps."""

    def __init__(self, name: str, parameters: list[nn.Parameter], steps: int) -> None:
        self.name, self.parameters, self.steps = name, parameters, steps
        self.optimizer = torch.optim.AdamW(parameters, lr=LEARNING_RATE, betas=(0.9, 0.95))
        self.began = time.time()

    def begin_step(self, step: int) -> None:
        rate = LEARNING_RATE * min(1, (step + 1) / WARMUP) * (0.5 + 0.5 * math.cos(math.pi * step / self.steps))
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def end_step(self, step: int, loss: Tensor, told: str = "") -> None:
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        if step % 100 == 0 or step == self.steps - 1:
            print(self.name, step, round(loss.item(), 3), told, f"{time.time() - self.began:.1f} s", flush=True)


def train_target(ids: Tensor, steps: int) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        intermediate_size=INTERMEDIATE,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        max_position_embeddings=POSITIONS,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=2,
        tie_word_embeddings=False,
    )
    config.dtype = "float32"
    target = LlamaForCausalLM(config).float()
    training = Training("target", list(target.parameters()), steps)
    for step in range(steps):
        training.begin_step(step)
        tokens = batch(ids)
        training.end_step(step, target(tokens, labels=tokens).loss)
    return target.eval()


# ---- the draft: module names are the checkpoint's --------------------------------------------------------------------


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class Attention(nn.Module):
    """Its input is twice as wide as its output: the token's embedding and the hidden state side by side."""

    def __init__(self) -> None:
        super().__init__()
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
        return rotate(q, positions), rotate(k, positions).repeat_interleave(group, 1), v.repeat_interleave(group, 1)


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(HIDDEN, INTERMEDIATE, False)
        self.up_proj = nn.Linear(HIDDEN, INTERMEDIATE, False)
        self.down_proj = nn.Linear(INTERMEDIATE, HIDDEN, False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.input_layernorm = Norm(HIDDEN)
        self.hidden_norm = Norm(HIDDEN)
        self.post_attention_layernorm = Norm(HIDDEN)
        self.self_attn = Attention()
        self.mlp = Mlp()


class Draft(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(len(AUX_LAYERS) * HIDDEN, HIDDEN, False)
        self.midlayer = Layer()
        self.norm = Norm(HIDDEN)
        self.lm_head = nn.Linear(HIDDEN, DRAFT_VOCAB, False)

    def forward(self, hidden: Tensor, embedded: Tensor, kv: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """One token further: hidden and embedded [B, S, HIDDEN] -> the next hidden states, and logits.

        `kv` has the keys and values of the steps before and gets this one's. As in serving, step n sees step 0's
        keys causally, and of each later step only the one at its own place.
        """
        layer = self.midlayer
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


INVERSE = 1.0 / (ROPE_THETA ** (torch.arange(0, HEAD_DIM, 2).float() / HEAD_DIM))
ANGLES = torch.outer(torch.arange(POSITIONS).float(), INVERSE)
COS, SIN = torch.cat([ANGLES, ANGLES], -1).cos(), torch.cat([ANGLES, ANGLES], -1).sin()


def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Rotary position embedding."""
    half = HEAD_DIM // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], -1)
    return x * COS[positions] + turned * SIN[positions]


def draft_vocabulary(ids: Tensor) -> tuple[Tensor, Tensor]:
    """The commonest tokens: d2t (target id minus draft id, for each draft id) and t2d (is this target id in it?)."""
    common = torch.sort(torch.topk(torch.bincount(ids, minlength=VOCAB), DRAFT_VOCAB).indices).values
    t2d = torch.zeros(VOCAB, dtype=torch.bool)
    t2d[common] = True
    return common - torch.arange(DRAFT_VOCAB), t2d


def train_draft(target: LlamaForCausalLM, ids: Tensor, d2t: Tensor, steps: int) -> Draft:
    """Learn to say what the target will say, DRAFT_DEPTH tokens ahead, from the target's hidden states."""
    to_draft = torch.full((VOCAB,), -1)
    to_draft[d2t + torch.arange(DRAFT_VOCAB)] = torch.arange(DRAFT_VOCAB)
    embedding = target.model.embed_tokens.weight.detach()
    draft = Draft()
    training = Training("draft", list(draft.parameters()), steps)
    for step in range(steps):
        training.begin_step(step)
        loss, right = draft_loss(draft, target, embedding, to_draft, batch(ids))
        training.end_step(step, loss, f"right: {[round(share, 3) for share in right]}")
    return draft


def draft_loss(
    draft: Draft, target: LlamaForCausalLM, embedding: Tensor, to_draft: Tensor, tokens: Tensor
) -> tuple[Tensor, list[float]]:
    """The loss over all depths, and how often each depth said the target's token."""
    with torch.no_grad():
        seen = target(tokens, output_hidden_states=True)
        said = seen.logits.argmax(-1)
        aux = torch.cat([seen.hidden_states[layer + 1] for layer in AUX_LAYERS], -1)
    hidden, kv, loss, right = draft.fc(aux), [], 0, []
    for depth in range(DRAFT_DEPTH):
        # the hidden state at t, `depth` steps on, and the embedding of token t+1+depth say token t+2+depth
        length = SEQUENCE - 2 - depth
        kv = [(k[:, :, :length], v[:, :, :length]) for k, v in kv]
        embedded = embedding[tokens[:, 1 + depth : 1 + depth + length]]
        hidden, logits = draft(hidden[:, :length], embedded, kv)
        wanted = to_draft[said[:, 1 + depth : 1 + depth + length]]
        known = wanted >= 0
        loss = loss + 0.8**depth * F.cross_entropy(logits[known], wanted[known])
        right.append(((logits.argmax(-1) == wanted) & known).float().mean().item())
    return loss, right


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
        "rope_theta": ROPE_THETA,
        "hidden_act": "silu",
        "vocab_size": VOCAB,
        "draft_vocab_size": DRAFT_VOCAB,
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "torch_dtype": "float32",
        "attention_bias": False,
        "mlp_bias": False,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": AUX_LAYERS, "use_aux_hidden_state": True},
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1))


def main(out: Path, target_steps: int = 1600, draft_steps: int = 900) -> None:
    torch.manual_seed(0)
    random.seed(0)
    torch.set_num_threads(2)
    for name in ("target", "draft"):
        (out / name).mkdir(parents=True, exist_ok=True)
    text = "".join(sample() for _ in range(20000))
    tokenizer = train_tokenizer(text)
    save_tokenizer(tokenizer, out / "target")
    ids = torch.tensor(tokenizer.encode(text).ids)
    target = train_target(ids, target_steps)
    target.save_pretrained(out / "target")
    d2t, t2d = draft_vocabulary(ids)
    save_draft(train_draft(target, ids, d2t, draft_steps), d2t, t2d, out / "draft")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:4]))
