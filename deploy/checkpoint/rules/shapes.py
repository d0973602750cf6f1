"""Shapes: what the tensors have, what the server builds from config.json, and what the target feeds in.

A shape that differs stops SGLang ("Attempted to load weight", srt/model_loader/weight_utils.py; the assertions of
srt/layers/linear.py and vocab_parallel_embedding.py, 0.5.8 to 0.5.23), unless it is too large along the axis that is
split over GPUs: then it is cut to size without a word; too small, down_proj, o_proj and gate/up are filled with zeros.
vLLM cuts in the same way, fills nothing with zeros, and stops at the rest, 0.32.0 and 0.33.0: "Tried to load weights of
size" for fc (model_executor/layers/linear.py), "exceeds dimension size" for all that is split
(model_executor/parameter.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from deploy.checkpoint.config import is_eagle3, number
from deploy.checkpoint.rules import Case, fail, unknown, warn
from deploy.findings import Finding, Outcome
from deploy.text.legible import one_line

NEAR = 0.01  # of a vocabulary: tokens that were added, or padding
PADDING = 64  # rows to which SGLang fills a vocabulary up
REMEDY = "mend hidden_size, target_hidden_size, draft_vocab_size, the heads or the aux layers in config.json"


def findings(case: Case) -> Iterator[Finding]:
    """The draft against its own config, and against the target."""
    placed = [landing for landing in (case.trace.landings if case.trace else ()) if landing.parameter and landing.why]
    refused = [f"{one_line(landing.tensor)}: {landing.why}" for landing in placed if landing.how == "refused"]
    partly = [f"{one_line(landing.tensor)}: {landing.why}" for landing in placed if landing.how != "refused"]
    if refused:
        what = f"{case.server} builds other shapes from config.json than the draft's tensors have, and will not start"
        yield fail(what, "\n".join(refused), REMEDY, "will not start")
    if partly:
        what = f"{case.server} takes tensors of the draft only in part, without a word"
        yield fail(what, "\n".join(partly), REMEDY)
    yield from _fit(case)


def _fit(case: Case) -> Iterator[Finding]:
    """Width and vocabulary are the target's: it feeds its states in, and takes its own token ids out
    (srt/speculative/eagle_worker_v2.py `set_embed`, srt/models/llama_eagle3.py `forward`, 0.5.23).
    """
    if not case.target_config and not is_eagle3(case.config):
        return
    known = {key: number(case.target_config, key) for key in ("hidden_size", "vocab_size", "num_hidden_layers")}
    if None in known.values():
        what = "the draft was not compared with its target, whose config is not known"
        evidence = (
            f"it says nothing of {', '.join(key for key in known if known[key] is None)}" if case.target_config else ""
        )
        remedy = "name a target whose config.json can be read: --target, or model.path of the profile"
        yield unknown(what, evidence, remedy)
    if not case.target_config:
        return
    hidden = case.number("target_hidden_size") or case.number("hidden_size")
    remedy = "take the draft that was trained for this target"
    for key, ours in (("hidden_size", hidden), ("vocab_size", case.number("vocab_size"))):
        theirs = number(case.target_config, key)
        if ours is None or theirs is None or ours == theirs:
            continue
        what = f"the draft was made for a target of {key} {ours}, this one has {theirs}"
        evidence = f"draft {ours}, target {theirs}"
        if key == "vocab_size" and abs(ours - theirs) <= NEAR * theirs:
            yield from _padded(case, ours, theirs, what)
        else:
            outcome: Outcome = "will not start" if key == "hidden_size" else "will serve at accept length 1.00"
            yield fail(what, evidence, remedy, outcome)


def _padded(case: Case, ours: int, theirs: int, what: str) -> Iterator[Finding]:
    """A vocabulary that is a little longer or shorter may be the same one, with tokens added or padded otherwise. The
    draft takes the target's embeddings as they are, so on one GPU it is served well; over several it looks for each
    token in the GPU that its own size says (srt/layers/vocab_parallel_embedding.py `forward`, 0.5.8 to 0.5.23).
    """
    evidence = f"draft {ours}, target {theirs}"
    if case.serving.tp == 1 or -(-ours // PADDING) == -(-theirs // PADDING):
        yield warn(f"{what}: it is served well if the tokens are the same", evidence, "see that the tokenizers agree")
    elif case.serving.tp is None:
        told = f"{what}: if the tokens are the same, one GPU serves it well, and several look them up in wrong places"
        yield unknown(told, evidence, f"write vocab_size: {theirs} into the draft's config.json, if the tokens agree")
    else:
        told = f"{what}: over {case.serving.tp} GPUs its tokens are looked up in wrong places"
        yield fail(told, evidence, f"write vocab_size: {theirs} into the draft's config.json, if the tokens agree")
