"""What a server makes of a draft, told from its headers and config before anything is launched.

Rules for SGLang's `LlamaForCausalLMEagle3`. That loader drops what it does not know and leaves at random what it
does not get, without a line in the log: the server is healthy, and not one drafted token is accepted.
Read in the wheels 0.5.8 and 0.5.23; files are named relative to `sglang/srt/`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from deploy.checkpoint import eagle3
from deploy.checkpoint.draft_facts import INTEGERS, SMALL, DraftFacts, load_facts
from deploy.checkpoint.eagle3 import Generation
from deploy.findings import Finding

__all__ = ["DraftFacts", "Serving", "findings", "load_facts"]

CHECK = "ckpt"
HOOK = "prepare hook hooks/fix_eagle3_keys"
HARMLESS = re.compile(r"rotary_emb\.|(^|\.)verifier_(norm|lm_head)\.")  # computed anew, or the target's own


@dataclass(frozen=True)
class Serving:
    """How the draft is to be served; a version that is not known leaves what differs between versions open."""

    engine: str
    version: str | None = None
    algorithm: str | None = None


@dataclass(frozen=True)
class Case:
    draft: DraftFacts
    target: Mapping[str, Any]
    serving: Serving

    @cached_property
    def generations(self) -> tuple[Generation, ...]:
        numbers = tuple(map(int, re.findall(r"\d+", self.serving.version or "")[:3]))
        if not any(numbers):  # 0.0.0.dev1: an editable install that does not know its own version
            return ("old", "new")
        return ("new",) if numbers >= (0, 5, 12) else ("old",)

    @property
    def server(self) -> str:
        return f"{self.serving.engine} {self.serving.version or '(version unknown)'}"

    def number(self, key: str) -> int | None:
        return eagle3.number(self.draft.config, key)

    def judge(self, problems: Callable[[Generation], list[str]], what: str, remedy: str) -> Iterator[Finding]:
        """FAIL for what is wrong in every generation that the server may be of, UNKNOWN for what is in some."""
        found = [problems(generation) for generation in self.generations]
        every = [problem for problem in found[0] if all(problem in others for others in found)]
        some = dict.fromkeys(problem for others in found for problem in others if problem not in every)
        if every:
            yield Finding(CHECK, "FAIL", f"{self.server} {what}", "\n".join(every), remedy)
        if some:
            sure = f"cannot tell without the server's version: before or since 0.5.12 it {what}"
            yield Finding(CHECK, "UNKNOWN", sure, "\n".join(some), remedy)


def findings(draft: DraftFacts, target: Mapping[str, Any] | None, serving: Serving) -> list[Finding]:
    """Everything that is wrong with a draft beside this target config; one PASS if nothing is. Reads nothing."""
    if serving.engine != "sglang" or draft.format == "gguf":
        return []
    target = target or {}
    text = eagle3.mapping(target, "text_config") or target  # a target that sees as well: its text model's
    case = Case(draft, text, serving)
    if draft.broken:
        return [fail("the draft's files are broken", "\n".join(draft.broken), "copy or save the draft again")]
    architectures = draft.config.get("architectures")
    architecture = str(architectures[0] if isinstance(architectures, list) and architectures else architectures)
    if "speculators_model_type" in draft.config:
        return [fail("is a raw Speculators folder, which SGLang does not know", architecture, "convert it first")]
    if "eagle3" not in architecture.lower():
        return [warn(f"no rules for a draft of class {architecture}: nothing was checked")]
    rules: list[Callable[[Case], Iterator[Finding]]] = [_algorithm, _config, fit, _aux_layers, vocabulary_map]
    if architecture == "LlamaForCausalLMEagle3" and not draft.config.get("quantization_config"):
        rules += [_dropped, _missing, _shapes]
    else:
        rules += [_unruled]
    found = [finding for rule in rules for finding in rule(case)]
    return found or [
        Finding(CHECK, "PASS", f"{case.server} loads this draft as {architecture}, and it fits its target")
    ]


def fail(what: str, evidence: str, remedy: str) -> Finding:
    return Finding(CHECK, "FAIL", what, evidence, remedy)


def warn(what: str) -> Finding:
    return Finding(CHECK, "WARN", what, remedy="look at the measured accept length")


def _unruled(case: Case) -> Iterator[Finding]:
    """What remains to be said of another class, or of tensors that are packed."""
    yield warn(f"no rules for the tensors of {case.draft.config['architectures'][0]}, or they are quantized")


def _algorithm(case: Case) -> Iterator[Finding]:
    """EAGLE turns the capture of aux layers off, so `fc` is skipped (models/llama_eagle3.py LlamaModel.forward)."""
    algorithm = (case.serving.algorithm or "").upper()
    if algorithm in {"EAGLE", "NEXTN"}:
        what = f"algorithm {algorithm} with an EAGLE-3 draft: the draft gets one layer's states, not the fused ones"
        yield fail(what, f"architectures: {case.draft.config['architectures']}", "speculative.algorithm=EAGLE3")


def _config(case: Case) -> Iterator[Finding]:
    """Keys that are read without a default, and the one that no version reads (models/llama_eagle3.py __init__)."""
    config = case.draft.config
    if config.get("norm_before_residual"):
        what = "the draft was trained with norm_before_residual, which SGLang does not implement"
        yield fail(what, "config.json: norm_before_residual: true", "train with norm_before_residual: false")
    if "target_hidden_size" in config and config["target_hidden_size"] is None:
        what = "target_hidden_size is null: the server multiplies it by the number of aux layers and dies"
        yield fail(what, "config.json: target_hidden_size: null", "remove the key")
    if "draft_vocab_size" not in config:
        what = "config.json has no draft_vocab_size: the server reads it and dies"
        yield fail(
            what, f"keys: {', '.join(sorted(config))}", "add it: lm_head's rows, or null to use the target's head"
        )
    layers = eagle3.layers(config)
    if layers > 1:
        several = {"old": [f"config.json: num_hidden_layers: {layers}"], "new": []}
        yield from case.judge(several.__getitem__, "takes drafts of one layer only", "upgrade to 0.5.12")


def fit(case: Case) -> Iterator[Finding]:
    """Width and vocabulary are the target's: it feeds its states in, and takes its own token ids out."""
    if not case.target:
        remedy = "name a target whose config.json can be read"
        yield Finding(
            CHECK, "UNKNOWN", "the draft was not compared with its target, whose config is not known", "", remedy
        )
        return
    hidden = case.number("target_hidden_size") or case.number("hidden_size")
    for key, ours in (("hidden_size", hidden), ("vocab_size", case.number("vocab_size"))):
        theirs = eagle3.number(case.target, key)
        if None not in (ours, theirs) and ours != theirs:
            what = f"the draft was made for a target of {key} {ours}, this one has {theirs}"
            yield fail(what, f"draft {ours}, target {theirs}", "take the draft that was trained for this target")


def _aux_layers(case: Case) -> Iterator[Finding]:
    """Captured is the input of layer id + 1 (models/llama.py set_eagle3_layers_to_capture), so -1 means embeddings."""
    ids, layers = eagle3.aux_ids(case.draft.config), eagle3.number(case.target, "num_hidden_layers")
    wrong = [number for number in ids if type(number) is not int or not -1 <= number < (layers or number + 1)]
    if wrong:
        what = f"aux layers {wrong} do not exist in the target, which has {layers}"
        yield fail(what, f"eagle_aux_hidden_state_layer_ids: {ids}", "write the ids that the draft was trained with")


def _dropped(case: Case) -> Iterator[Finding]:
    """A name that is no parameter, as it is or after `model.`, is passed over in silence."""
    config = case.draft.config
    names = [name for name in case.draft.tensors if not HARMLESS.search(name)]

    def dropped(generation: Generation) -> list[str]:
        return [f"{name} -> dropped" for name in names if eagle3.place(name, generation, config) is None]

    remedy = "convert the draft, or train it, for this class"
    if all(eagle3.place(eagle3.portable(name), "new", config) for name in names):
        remedy = "upgrade to 0.5.12 or later"
    if all(eagle3.place(eagle3.portable(name), "old", config) for name in names):
        remedy = f"rename them to midlayer.*, without model.: {HOOK}"
    yield from case.judge(dropped, "drops tensors of the draft without a word: what they are for stays random", remedy)


def _missing(case: Case) -> Iterator[Finding]:
    """A parameter that no tensor fills keeps its random start; nothing reports it."""
    config = case.draft.config
    there = {eagle3.place(eagle3.portable(name), "new", config) for name in case.draft.tensors}

    def missing(generation: Generation) -> list[str]:
        # only the first layer takes embeddings in
        inner = re.compile(r"layers\.\d+\.input_layernorm\.weight")
        needed = {name for name in eagle3.unfilled(generation, config, there) if not inner.fullmatch(name)}
        if config.get("tie_word_embeddings") or config.get("draft_vocab_size", 0) is None:
            needed.discard("lm_head.weight")  # the target's head is used
        return [f"{name} <- nothing" for name in sorted(needed)]

    yield from case.judge(
        missing, "finds no tensor for parameters: they stay random", "save the draft with all of them"
    )


def _shapes(case: Case) -> Iterator[Finding]:
    """A shape that differs stops the server: "Attempted to load weight" (model_loader/weight_utils.py)."""

    def differing(generation: Generation) -> list[str]:
        placed = {name: eagle3.place(name, generation, case.draft.config) for name in case.draft.tensors}
        return misshapen(case.draft, placed, generation)

    what = "builds other shapes from config.json than the draft's tensors have, and will not start"
    yield from case.judge(differing, what, "mend hidden_size, target_hidden_size, draft_vocab_size or the aux layers")


def misshapen(draft: DraftFacts, placed: Mapping[str, str | None], generation: Generation) -> list[str]:
    """What differs between the draft's tensors and the parameters where they are `placed`, a line each."""
    wanted = eagle3.shapes(generation, draft.config)
    pairs = [(name, draft.tensors[name].shape, wanted.get(place or "")) for name, place in placed.items()]
    return [
        f"{name}: {list(ours)}, the server builds {list(theirs)}"
        for name, ours, theirs in pairs
        if theirs and ours != theirs
    ]


def vocabulary_map(case: Case) -> Iterator[Finding]:
    """The server takes d2t as offsets: target id = draft id + d2t[draft id] (models/llama_eagle3.py load_weights)."""
    rows, vocabulary = case.number("draft_vocab_size"), case.number("vocab_size")
    tensor = next((tensor for name, tensor in case.draft.tensors.items() if "d2t" in name), None)
    if tensor is None:
        if rows is not None and vocabulary is not None and rows < vocabulary:
            what = "d2t is missing: the draft's token ids would be taken for the target's"
            yield fail(what, f"draft_vocab_size {rows}, vocab_size {vocabulary}", "save the draft with its d2t")
        return
    if tensor.dtype not in INTEGERS:
        yield fail("d2t does not hold integers", f"dtype {tensor.dtype}", "save it as I64")
    elif tensor.shape != (rows or vocabulary,):
        what = f"d2t maps {list(tensor.shape)} draft tokens, the draft has {rows or vocabulary}"
        yield fail(what, f"draft_vocab_size {rows}", "take d2t and lm_head from the same training")
    elif case.draft.d2t is None:
        what = f"cannot tell whether d2t holds offsets: it is larger than {SMALL} bytes"
        yield Finding(CHECK, "UNKNOWN", what, f"shape {list(tensor.shape)}", "a map of tokens is that of another model")
    else:
        yield from _offsets(case.draft.d2t, case.draft.t2d, eagle3.number(case.target, "vocab_size") or vocabulary)


def _offsets(d2t: Sequence[int], t2d: frozenset[int] | None, vocabulary: int | None) -> Iterator[Finding]:
    evidence = f"d2t: {list(d2t[:6])} ... {list(d2t[-2:])}" + ("" if t2d is None else f"; t2d: {sorted(t2d)[:6]} ...")
    kind = eagle3.map_kind(d2t, t2d, vocabulary)
    if kind == "absolute":
        yield fail("d2t holds target ids, the server wants offsets (target id - draft id)", evidence, "subtract arange")
    elif kind == "neither":
        remedy = "look at how d2t was made: d2t[i] + i must be the target's id of draft token i"
        yield Finding(CHECK, "UNKNOWN", "cannot tell whether d2t holds offsets", evidence, remedy)
