"""Train a tiny Llama target and an EAGLE-3 draft for it on a CPU: train.py OUT [TARGET_STEPS] [DRAFT_STEPS].

Writes OUT/target and OUT/draft, each a config.json beside a model.safetensors. Needs torch, transformers, tokenizers
and safetensors; about 20 minutes on two busy cores. The same steps give the same weights on the same machine.
"""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from eagle3 import (
    HEAD_DIM,
    HEADS,
    HIDDEN,
    INTERMEDIATE,
    KV_HEADS,
    POSITIONS,
    VOCAB,
    Draft,
    draft_ids,
    draft_vocabulary,
    save_draft,
)
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

LAYERS = 6
AUX_LAYERS = [0, 2, 4]  # whose outputs the draft sees; the last that SGLang can capture is LAYERS - 2
ROPE_THETA = 10000.0

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


def train_tokenizer(text: str, *splits: pre_tokenizers.PreTokenizer) -> Tokenizer:
    """A byte-level BPE; no token goes across what `splits` set apart."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
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


def train_target(batches: Callable[[], tuple[Tensor, Tensor]], steps: int, layers: int) -> LlamaForCausalLM:
    """Learn to go on from batches of tokens; the second of each pair says what counts, -100 where nothing does."""
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        intermediate_size=INTERMEDIATE,
        num_hidden_layers=layers,
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
        tokens, labels = batches()
        training.end_step(step, target(tokens, labels=labels).loss)
    return target.eval()


def train_draft(target: LlamaForCausalLM, ids: Tensor, d2t: Tensor, steps: int) -> Draft:
    """Learn to say what the target will say, DRAFT_DEPTH tokens ahead, from the target's hidden states."""
    to_draft = draft_ids(d2t)
    embedding = target.model.embed_tokens.weight.detach()
    draft = Draft(AUX_LAYERS, ROPE_THETA)
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
    hidden, kv, loss, right = aux, [], 0, []
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
    target = train_target(lambda: (batch(ids),) * 2, target_steps, LAYERS)
    target.save_pretrained(out / "target")
    d2t, t2d = draft_vocabulary(ids)
    save_draft(train_draft(target, ids, d2t, draft_steps), d2t, t2d, out / "draft")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:4]))
