"""The map from the draft's tokens to the target's: target id = draft id + d2t[draft id].

Read in srt/models/llama_eagle3.py `load_weights` (0.5.8 to 0.5.23), kimi_k25_eagle3.py (0.5.12 to 0.5.23), and in
vLLM's model_executor/models/llama_eagle3.py `compute_logits` (0.32.0, 0.33.0): both take offsets, and trust them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from deploy.checkpoint.config import is_eagle3, number
from deploy.checkpoint.facts import Tensor
from deploy.checkpoint.rules import Case, fail, unknown, warn
from deploy.findings import Finding, Outcome
from deploy.host.remedy import map_kind

OTHER = "take the draft that was trained for this target"
INTEGERS = {"I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8"}


def findings(case: Case) -> Iterator[Finding]:
    """Is there a map, of integers, as long as the head, of offsets, into the target's vocabulary?"""
    if not is_eagle3(case.config) or "speculators_model_type" in case.config:
        return
    tensor = next((tensor for name, tensor in case.draft.tensors.items() if "d2t" in name), None)
    rows, vocabulary = case.number("draft_vocab_size"), case.number("vocab_size")
    if tensor is None:
        if rows is not None and vocabulary is not None and rows < vocabulary:
            what = "d2t is missing: the draft's token ids would be taken for the target's"
            yield fail(what, f"draft_vocab_size {rows}, vocab_size {vocabulary}", "save the draft with its d2t")
        return
    yield from _flags(case)
    whole = "draft_vocab_size" in case.config and case.config["draft_vocab_size"] is None
    yield from _map(case, tensor, vocabulary if whole else rows)


def _map(case: Case, tensor: Tensor, rows: int | None) -> Iterator[Finding]:
    """A table of floats makes ids that no embedding takes; one of another length is that of another head."""
    if tensor.dtype not in INTEGERS:
        yield fail("d2t does not hold integers", f"dtype {tensor.dtype}", "save it as I64", "will not start")
    elif rows is not None and rows > 0 and tensor.shape != (rows,) and not _head_too(case, tensor):
        what = f"d2t maps {list(tensor.shape)} draft tokens, the draft has {rows}"
        remedy = "take d2t and lm_head from the same training, and let draft_vocab_size say their length"
        yield fail(what, f"draft_vocab_size {case.config.get('draft_vocab_size')}", remedy, "corrupt")
    elif rows is not None and tensor.shape != (rows,):
        return
    elif case.draft.d2t is None:
        what = "cannot tell whether d2t holds offsets: it was too large to be read"
        yield unknown(what, f"shape {list(tensor.shape)}", "a map of tokens is that of another model")
    else:
        yield from _offsets(case, case.draft.d2t)


def _head_too(case: Case, tensor: Tensor) -> bool:
    """Whether the head is as long as the map, and refused: then config.json is wrong, as the rule `shapes` tells."""
    head = case.draft.tensors.get("lm_head.weight")
    refused = case.trace and any(one.tensor == "lm_head.weight" and one.how == "refused" for one in case.trace.landings)
    return bool(refused and head and head.shape[:1] == tensor.shape)


def _offsets(case: Case, d2t: Sequence[int]) -> Iterator[Finding]:
    """A token beyond the vocabulary kills a server on one GPU; over several, it has embeddings of zeros
    (srt/layers/vocab_parallel_embedding.py, 0.5.8 and 0.5.23; measured on one CPU with 0.5.23).
    """
    t2d = case.draft.t2d
    size = number(case.target_config, "vocab_size") or case.number("vocab_size")
    evidence = f"d2t: {list(d2t[:6])} ... {list(d2t[-2:])}" + ("" if t2d is None else f"; t2d: {sorted(t2d)[:6]} ...")
    targets = [number + offset for number, offset in enumerate(d2t)]
    kind = map_kind(d2t, t2d, size)
    outside = [target for target in targets if not 0 <= target < (size or target + 1)]
    if kind == "absolute":
        what = "d2t holds target ids, the server wants offsets (target id - draft id)"
        dies = bool(outside) and case.serving.tp in (None, 1)
        if outside:
            many = case.serving.tp is not None and case.serving.tp > 1
            what += f", and is led out of the vocabulary: {'over several GPUs' if many else 'on one GPU'}"
            what += " nothing is accepted" if many else " it dies at its first request"
            what += "" if case.serving.tp else ", over several nothing is accepted"
        remedy = "subtract arange: deploy ckpt fix"
        yield fail(what, evidence, remedy, "will not start" if dies else "will serve at accept length 1.00")
    elif kind == "neither":
        remedy = "look at how d2t was made: d2t[i] + i must be the target's id of draft token i"
        yield unknown("cannot tell whether d2t holds offsets", evidence, remedy)
    elif outside:
        what = f"d2t leads to {len(outside)} tokens that the target does not have"
        told = f"vocab_size {size}, d2t leads to {outside[:4]}"
        own = case.number("vocab_size")
        if own is not None and all(0 <= target < own for target in outside):  # sound, and of another target
            outcome: Outcome = "will not start" if case.serving.tp in (None, 1) else "will serve at accept length 1.00"
            yield fail(what, f"{told}; the draft's own vocabulary has {own}", OTHER, outcome)
        else:
            yield fail(what, told, "take the d2t of this draft and this target", "corrupt")


def _flags(case: Case) -> Iterator[Finding]:
    """t2d is passed over by both servers, so one that does not fit harms nothing, and says that d2t may be of another
    training.
    """
    tensor = next((tensor for name, tensor in case.draft.tensors.items() if "t2d" in name), None)
    vocabulary = case.number("vocab_size")
    if tensor is not None and vocabulary is not None and tensor.shape != (vocabulary,):
        what = f"t2d has {list(tensor.shape)} flags, the vocabulary has {vocabulary} tokens"
        yield warn(what, f"vocab_size {vocabulary}", "take d2t and t2d from the same training")
