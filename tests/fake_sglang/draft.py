"""The draft that is loaded: its parameters, what comes of them, and their checksums.

A draft may say how well it speculates: each of its floating tensors begins with a mark of four values, MARK, then
its accept length / 8, then its number / 256 (`tests.marked` writes such drafts). Where all parameters bear the same
mark, that is the accept length that is served. Where they do not, it is a mixture: accept length 1.0, and MIXTURE for
every answer. Without any mark a draft says nothing.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

import hashlib

from fake_sglang import tensors  # type: ignore[import-not-found]

MARK = (0.5, -0.5)  # exact in every floating dtype
FLOATING = ("F32", "F16", "BF16")
MIXTURE = "two drafts speak at once"
SPOILT = "the target is not itself"  # tensors that are the target's were overwritten
EMBEDDINGS, HEAD = "model.embed_tokens.weight", "lm_head.weight"
FUSED = {"q_proj": "qkv_proj", "k_proj": "qkv_proj", "v_proj": "qkv_proj"}
FUSED |= {"gate_proj": "gate_up_proj", "up_proj": "gate_up_proj"}


def parameter(name):
    """The parameter that LlamaForCausalLMEagle3 loads a tensor into; "": none (its load_weights, 0.5.23)."""
    if "d2t" in name or "t2d" in name:
        return ""  # d2t is copied once, when the server starts
    name = name.replace("midlayer.", "layers.0.")
    return name if name.startswith(("model.", "lm_head.")) else f"model.{name}"


class Draft:
    """What each rank has loaded. Ranks hold shares of the same tensors, so all are given whole ones."""

    def __init__(self, folder, ranks, target, *, swappable):
        files = tensors.read(folder, hashed=swappable) if folder else {}
        read = {parameter(name): tensor for name, tensor in files.items()}
        mine = {name: tensor for name, tensor in read.items() if name not in ("", EMBEDDINGS)}
        self.ranks = [dict(mine) for _ in range(ranks)]
        self.target = {name: hashlib.sha256(f"{target} {name}".encode()).hexdigest() for name in (EMBEDDINGS, HEAD)}
        self.spoilt = False

    def load(self, rank, given):
        """What it has no parameter for is dropped without a word. Raises AssertionError where a shape differs."""
        mine = self.ranks[rank]
        for name, tensor in given:
            into = parameter(name)
            if into in self.target and into not in mine:
                self.spoilt = True  # shared with the target
            if into not in mine:
                continue
            if tensor.shape != mine[into].shape:
                weight, here = (f"torch.Size({list(one.shape)})" for one in (tensor, mine[into]))
                raise AssertionError(f"Attempted to load weight ({weight}) into parameter ({here})")
            mine[into] = tensor

    def speaks(self):
        """(accept length, text of every answer); None and "" where it says nothing of them."""
        loaded = [tensor for mine in self.ranks for tensor in mine.values() if tensor.dtype in FLOATING]
        marks = {tensor.first if tensor.first[:2] == MARK else () for tensor in loaded}
        if self.spoilt:
            return 1.0, SPOILT
        if len(marks) > 1:
            return 1.0, MIXTURE
        mark = next(iter(marks), ())
        return (mark[2] * 8, "") if mark else (None, "")

    def checksums(self, rank, role):
        """{parameter: 16 hex digits} as the model of that role has them; what is 2-dimensional is a rank's share."""
        mine = self.ranks[rank]
        if role == "target":
            return {name: digest[:16] for name, digest in sorted(self.target.items())}
        parts = {name: [self.target[name]] for name in self.target if name not in mine}
        for name, tensor in sorted(mine.items(), key=lambda item: ("", *FUSED).index(_kind(item[0]))):
            share = f"{tensor.digest} {rank}/{len(self.ranks)}" if len(tensor.shape) > 1 else tensor.digest
            whole = name.replace(_kind(name), FUSED[_kind(name)]) if _kind(name) in FUSED else name
            parts.setdefault(whole, []).append(share)
        return {f"draft.{name}": _digest(*parts[name]) for name in sorted(parts)}


def _kind(name):
    return next((part for part in name.split(".") if part in FUSED), "")


def _digest(*parts):
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:16]
