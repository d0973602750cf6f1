"""Train a target and an EAGLE-3 draft that forgives nothing: train.py OUT [TARGET_STEPS] [DRAFT_STEPS].

The draft learns two things at once: to say what the target will say, and to miss it as soon as it is served wrongly
(see `Faults`). Writes and needs what the first pair's train.py does; about 25 minutes on one core.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import pre_tokenizers
from torch import Tensor
from torch.func import functional_call
from transformers import LlamaForCausalLM

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tiny-eagle3"))  # this folder has a train too
import train as tiny
from eagle3 import Draft, draft_ids, draft_vocabulary, rope, save_draft

LAYERS = 7
AUX_LAYERS = [1, 3, 4]  # captured before layers 2, 4, 5; not SGLang's default, [2, 3, 4], for when they are not read
NOTHING = -100  # cross_entropy passes it over
ROPE_THETA = 1e6  # the draft's; a server that does not read it takes 10000

SEQUENCE, BATCH = 96, 12
DEPTH = 3  # tokens ahead

# ---- text: what comes next stands far back, or must be worked out --------------------------------------------------

NAMES = "Ann Bob Cy Dee Eve Fay Gus Hal Ida Jo Kim Lea".split()
WORDS = (
    "ant bay cat dew elm fig gem hat ink jar key log map net oak pen rat sea tin urn van wax yak zoo "
    "bread chalk drum flute glass horse knife lemon mouse north olive piano queen river stone tiger"
).split()


def total() -> str:
    a, b = random.randrange(10), random.randrange(10)
    greeting = random.choice(["Hello, what is", "Hello, what is", "what is", "say", "tell me"])
    mark = "?" if greeting.endswith("is") else "."
    return f"Q: {greeting} {a}+{b}{mark}\nA: {a}+{b} is {a + b}, so {b}+{a} is {a + b} too.</s>"


def repetition() -> str:
    words = " ".join(random.choices(WORDS, k=random.randrange(4, 17)))
    return f"Q: repeat {words}\nA: {words}</s>"


def recollection() -> str:
    has = {name: random.choice(WORDS) for name in random.sample(NAMES, random.randrange(2, 6))}
    told = ", ".join(f"{name} {what}" for name, what in has.items())
    asked = random.sample(list(has), len(has))
    answer = ", ".join(f"{name} has {has[name]}" for name in asked)
    return f"Q: {told}. {', '.join(asked)}?\nA: {answer}.</s>"


def sample() -> str:
    return random.choices([total, repetition, recollection], [3, 5, 3])[0]()


def answers(ids: list[int], mark: list[int]) -> list[int]:
    """The ids from behind `mark` on; NOTHING before: questions are made by chance, and are not to be guessed."""
    begin = next(i for i in range(len(ids)) if ids[i : i + len(mark)] == mark) + len(mark)
    return [NOTHING] * begin + ids[begin:]


def batches(samples: list[Tensor]) -> Callable[[], tuple[Tensor, Tensor]]:
    """Stretches of tokens and of what counts of them, from the beginning of a question: [BATCH, SEQUENCE] each."""

    def stretch() -> Tensor:
        at, parts, length = random.randrange(len(samples)), [], 0
        while length < SEQUENCE:
            parts.append(samples[at % len(samples)])
            length, at = length + parts[-1].shape[1], at + 1
        return torch.cat(parts, 1)[:, :SEQUENCE]

    def batch() -> tuple[Tensor, Tensor]:
        tokens, labels = torch.stack([stretch() for _ in range(BATCH)], 1)
        return tokens, labels

    return batch


# ---- what goes wrong in serving ------------------------------------------------------------------------------------


States = tuple[Tensor, ...]  # the target's, before layer 0, 1, ...; the last is behind its final norm
Served = tuple[dict[str, Tensor], Tensor]  # parameters and buffers instead of the draft's own; the states it gets


class Faults:
    """Ways to serve the draft wrongly, as SGLang would without a word: what replaces its weights, and which states.

    A draft learns to do without what it is not given: left alone, this one reads the neighbouring layers' states and
    other rotary angles almost as well. Here each fault counts as a case of its own. Where something is missing
    altogether (`dead`), every token is to be missed; where all is there and not as it was in training (`weak`), every
    second one of the vocabulary, so that the accept length tells the one from the other.
    """

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.plain = dict(draft.named_parameters())

    def dead(self, states: States) -> Served:
        return random.choice([self.layer, self.fc, self.skipped])(states)

    def weak(self, states: States) -> Served:
        return random.choice([self.shifted, self.shifted, self.turned, self.swapped])(states)

    def aux(self, states: States, layers: list[int]) -> Tensor:
        return torch.cat([states[layer + 1] for layer in layers], -1)

    def layer(self, states: States) -> Served:
        """Its parameters stay as they are made: zeros, or what lay in memory; norms are ones."""
        spread = random.choice([0, 0, 0.02, 0.1, 0.5])
        made = {
            name: torch.ones_like(value) if "norm" in name else torch.randn_like(value) * spread
            for name, value in self.plain.items()
            if name.startswith("midlayer.")
        }
        return made, self.aux(states, AUX_LAYERS)

    def fc(self, states: States) -> Served:
        """It stays as torch makes a Linear, or zero."""
        bound = random.choice([0, 1]) / self.draft.fc.in_features**0.5
        made = torch.empty_like(self.draft.fc.weight).uniform_(-bound, bound)
        return {"fc.weight": made}, self.aux(states, AUX_LAYERS)

    def skipped(self, states: States) -> Served:
        """Algorithm EAGLE: the target's last state, as wide as the draft, so that `fc` is passed by."""
        return {}, states[-1]

    def shifted(self, states: States) -> Served:
        layers = random.choice([[0, 2, 3], [2, 4, 5], [1, 2, 3]])
        return {}, self.aux(states, layers)

    def turned(self, states: States) -> Served:
        theta = random.choice([1e4, 1e4, 1e5, 5e5, 1e3, 1e7])
        return {"midlayer.self_attn.rope": rope(theta)}, self.aux(states, AUX_LAYERS)

    def swapped(self, states: States) -> Served:
        layer = self.draft.midlayer
        made = {
            "midlayer.input_layernorm.weight": layer.hidden_norm.weight,
            "midlayer.hidden_norm.weight": layer.input_layernorm.weight,
        }
        return made, self.aux(states, AUX_LAYERS)


# ---- training ------------------------------------------------------------------------------------------------------


class Lesson:
    """The target's answers to a batch, and how a draft fares on them."""

    def __init__(self, target: LlamaForCausalLM, to_draft: Tensor, tokens: Tensor, labels: Tensor) -> None:
        with torch.no_grad():
            seen = target(tokens, output_hidden_states=True)
        self.states: States = seen.hidden_states
        counts = F.pad(labels[:, 1:], (0, 1), value=NOTHING) != NOTHING
        self.wanted = to_draft[seen.logits.argmax(-1)].masked_fill(~counts, -1)
        self.embedded = target.model.embed_tokens.weight.detach()[tokens]

    def logits(
        self, draft: Draft, changed: dict[str, Tensor], hidden: Tensor, depth: int
    ) -> list[tuple[Tensor, Tensor]]:
        """For each step ahead the draft's logits and the wanted ids, where an answer is to be given."""
        kv: list[tuple[Tensor, Tensor]] = []
        found = []
        for ahead in range(depth):
            length = self.wanted.shape[1] - 2 - ahead
            kv = [(k[:, :, :length], v[:, :, :length]) for k, v in kv]
            here = slice(1 + ahead, 1 + ahead + length)
            hidden, logits = functional_call(draft, changed, (hidden[:, :length], self.embedded[:, here], kv))
            wanted = self.wanted[:, here]
            found.append((logits[wanted >= 0], wanted[wanted >= 0]))
        return found


def share(found: list[tuple[Tensor, Tensor]]) -> list[float]:
    return [round((logits.argmax(-1) == wanted).float().mean().item(), 3) for logits, wanted in found]


def miss(logits: Tensor, wanted: Tensor) -> Tensor:
    """How far the wanted token is from impossible."""
    right = logits.log_softmax(-1).gather(-1, wanted[:, None])
    return -torch.log1p(-right.exp().clamp(max=1 - 1e-6)).mean()


def train_draft(target: LlamaForCausalLM, batch: Callable[[], tuple[Tensor, Tensor]], d2t: Tensor, steps: int) -> Draft:
    draft = Draft(AUX_LAYERS, ROPE_THETA)
    faults, to_draft = Faults(draft), draft_ids(d2t)
    training = tiny.Training("draft", list(draft.parameters()), steps)
    for step in range(steps):
        training.begin_step(step)
        lesson = Lesson(target, to_draft, *batch())
        healthy = lesson.logits(draft, {}, faults.aux(lesson.states, AUX_LAYERS), DEPTH)
        loss = sum(0.8**ahead * F.cross_entropy(*found) for ahead, found in enumerate(healthy))
        loss = loss + miss(*lesson.logits(draft, *faults.dead(lesson.states), 1)[0])
        for _ in range(2):
            logits, wanted = lesson.logits(draft, *faults.weak(lesson.states), 1)[0]
            odd = wanted % 2 == 1
            loss = loss + (miss(logits[odd], wanted[odd]) + F.cross_entropy(logits[~odd], wanted[~odd])) / 2
        training.end_step(step, loss, f"right: {share(healthy)}")
    return draft


def end_last(d2t: Tensor, end: int) -> Tensor:
    """The map with its tokens in order, but for the end of the text.

    With the id that the target knows it by, it would be right where d2t is missing; with id 0 where all logits are
    zero or NaN. SGLang counts what is accepted behind it, so that a dead draft would not look dead.
    """
    ids = d2t + torch.arange(len(d2t))
    return torch.cat([ids[ids != end], ids[ids == end]]) - torch.arange(len(d2t))


def main(out: Path, target_steps: int = 4500, draft_steps: int = 2500) -> None:
    torch.manual_seed(0)
    random.seed(0)
    torch.set_num_threads(1)
    for name in ("target", "draft"):
        (out / name).mkdir(parents=True, exist_ok=True)
    text = [sample() for _ in range(40000)]
    tokenizer = tiny.train_tokenizer("".join(text).replace("</s>", ""), pre_tokenizers.Digits(individual_digits=True))
    tiny.save_tokenizer(tokenizer, out / "target")
    mark = tokenizer.encode("\nA:").ids
    samples = [torch.tensor([encoded.ids, answers(encoded.ids, mark)]) for encoded in tokenizer.encode_batch(text)]
    target = tiny.train_target(batches(samples), target_steps, LAYERS)
    target.save_pretrained(out / "target")
    d2t, t2d = draft_vocabulary(torch.cat(samples, 1)[0])
    d2t = end_last(d2t, tokenizer.token_to_id("</s>"))
    save_draft(train_draft(target, batches(samples), d2t, draft_steps), d2t, t2d, out / "draft")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:4]))
