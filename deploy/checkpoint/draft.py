"""What a server makes of a draft, told from its headers and config before anything is launched.

Rules for SGLang's `LlamaForCausalLMEagle3`. That loader drops what it does not know and leaves at random what it
does not get, without a line in the log: the server is healthy, and not one drafted token is accepted.
Read in the wheels 0.5.8 and 0.5.23; files are named relative to `sglang/srt/`. The layer is `midlayer` up to 0.5.11
(the old generation) and `layers.N` since 0.5.12 (the new one, which takes both spellings).
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from deploy.checkpoint import header, manifest
from deploy.checkpoint.header import HeaderError, Tensor
from deploy.checks import Finding

CHECK = "ckpt"
HOOK = "prepare hook hooks/fix_eagle3_keys"
PROJECTIONS = [f"self_attn.{name}_proj.weight" for name in "qkvo"] + [
    f"mlp.{name}_proj.weight" for name in ("gate", "up", "down")
]
NORMS = [f"{name}.weight" for name in ("input_layernorm", "hidden_norm", "post_attention_layernorm")]
FUSED = {"self_attn.qkv_proj.weight": PROJECTIONS[:3], "mlp.gate_up_proj.weight": PROJECTIONS[4:6]}  # saved stacked
LAYER = [*PROJECTIONS, *NORMS, *FUSED]
HARMLESS = re.compile(r"rotary_emb\.|(^|\.)verifier_(norm|lm_head)\.")  # computed anew, or the target's own
INTEGERS = {"I64": "q", "I32": "i", "I16": "h", "I8": "b", "U64": "Q", "U32": "I", "U16": "H", "U8": "B"}
SMALL = 64 << 20  # bytes: a map of eight million tokens

Generation = Literal["old", "new"]


@dataclass(frozen=True)
class DraftFacts:
    """A draft as its files say: tensors of all shards, config, and the two vocabulary maps."""

    path: str
    tensors: Mapping[str, Tensor]
    config: Mapping[str, Any]
    d2t: Sequence[int] | None = None  # as it lies in the file; None: missing, or not of integers
    t2d: frozenset[int] | None = None  # target ids that the draft can say
    broken: tuple[str, ...] = ()  # what could not be read, each with its reason
    format: Literal["safetensors", "gguf"] = "safetensors"


@dataclass(frozen=True)
class Serving:
    """How the draft is to be served; a version that is not known leaves what differs between versions open."""

    engine: str
    version: str | None = None
    algorithm: str | None = None


@dataclass(frozen=True)
class _Case:
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
        return _number(self.draft.config, key)

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
    case = _Case(draft, _dict(target, "text_config") or target, serving)  # where it also sees: the text model's
    if draft.broken:
        return [_fail("the draft's files are broken", "\n".join(draft.broken), "copy or save the draft again")]
    architectures = draft.config.get("architectures")
    architecture = str(architectures[0] if isinstance(architectures, list) and architectures else architectures)
    if "speculators_model_type" in draft.config:
        return [_fail("is a raw Speculators folder, which SGLang does not know", architecture, "convert it first")]
    if "eagle3" not in architecture.lower():
        return [_warn(f"no rules for a draft of class {architecture}: nothing was checked")]
    rules: list[Callable[[_Case], Iterator[Finding]]] = [_algorithm, _config, _fit, _aux_layers, _vocabulary_map]
    if architecture == "LlamaForCausalLMEagle3" and not draft.config.get("quantization_config"):
        rules += [_dropped, _missing, _shapes]
    else:
        rules += [_unruled]
    found = [finding for rule in rules for finding in rule(case)]
    return found or [
        Finding(CHECK, "PASS", f"{case.server} loads this draft as {architecture}, and it fits its target")
    ]


def load_facts(path: Path) -> DraftFacts:
    """Read a local draft's headers, config and vocabulary maps. Raises ConfigError where there is no checkpoint."""
    source = manifest.source(path)
    shards = [name for name in source.files if name.endswith(".safetensors") and "/" not in name]
    if not shards and any(name.endswith(".gguf") for name in source.files):
        return DraftFacts(str(path), {}, {}, format="gguf")
    broken: list[str] = [] if shards else ["there is no .safetensors file in it"]
    config = _json(source.root / "config.json", broken)
    if "model.safetensors.index.json" in source.files:
        index = _dict(_json(source.root / "model.safetensors.index.json", broken), "weight_map")
        broken += [f"{name}: named by the index, missing" for name in sorted({*map(str, index.values())} - {*shards})]
    tensors: dict[str, Tensor] = {}
    maps: dict[str, list[int] | None] = {"d2t": None, "t2d": None}
    for shard in shards:
        try:
            found = header.read(source.root / shard)
            for name in found.tensors:
                key = next((key for key in maps if key in name), "")
                if key:
                    maps[key] = _integers(source.root / shard, found, name)
        except (HeaderError, OSError) as error:
            broken.append(str(error))
            continue
        tensors.update(found.tensors)
    t2d = None if maps["t2d"] is None else frozenset(i for i, known in enumerate(maps["t2d"]) if known)
    return DraftFacts(str(path), tensors, config, maps["d2t"], t2d, tuple(broken))


def _json(path: Path, broken: list[str]) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        broken.append(f"{path}: {error}")
        return {}
    if not isinstance(found, dict):
        broken.append(f"{path}: is not a JSON object")
        return {}
    return found


def _integers(path: Path, found: header.Header, name: str) -> list[int] | None:
    tensor = found.tensors[name]
    code = {**INTEGERS, "BOOL": "B"}.get(tensor.dtype)
    if code is None or tensor.end - tensor.start > SMALL:
        return None
    return array(code, header.load(path, found, name)).tolist()


def _number(config: Mapping[str, Any], key: str) -> int | None:
    value = config.get(key)
    return value if type(value) is int else None


def _dict(config: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = config.get(key)
    return value if isinstance(value, dict) else {}


def _aux_ids(config: Mapping[str, Any]) -> list[Any]:
    """Nested only: ids at the top level do not steer the capture (model_executor/model_runner.py)."""
    ids = _dict(config, "eagle_config").get("eagle_aux_hidden_state_layer_ids")
    return ids if isinstance(ids, list) else []


def _fail(what: str, evidence: str, remedy: str) -> Finding:
    return Finding(CHECK, "FAIL", what, evidence, remedy)


def _warn(what: str) -> Finding:
    return Finding(CHECK, "WARN", what, remedy="look at the measured accept length")


def _unruled(case: _Case) -> Iterator[Finding]:
    """What remains to be said of another class, or of tensors that are packed."""
    yield _warn(f"no rules for the tensors of {case.draft.config['architectures'][0]}, or they are quantized")


def _algorithm(case: _Case) -> Iterator[Finding]:
    """EAGLE turns the capture of aux layers off, so `fc` is skipped (models/llama_eagle3.py LlamaModel.forward)."""
    algorithm = (case.serving.algorithm or "").upper()
    if algorithm in {"EAGLE", "NEXTN"}:
        what = f"algorithm {algorithm} with an EAGLE-3 draft: the draft gets one layer's states, not the fused ones"
        yield _fail(what, f"architectures: {case.draft.config['architectures']}", "speculative.algorithm=EAGLE3")


def _config(case: _Case) -> Iterator[Finding]:
    """Keys that are read without a default, and the one that no version reads (models/llama_eagle3.py __init__)."""
    config = case.draft.config
    if config.get("norm_before_residual"):
        what = "the draft was trained with norm_before_residual, which SGLang does not implement"
        yield _fail(what, "config.json: norm_before_residual: true", "train with norm_before_residual: false")
    if "target_hidden_size" in config and config["target_hidden_size"] is None:
        what = "target_hidden_size is null: the server multiplies it by the number of aux layers and dies"
        yield _fail(what, "config.json: target_hidden_size: null", "remove the key")
    if "draft_vocab_size" not in config:
        what = "config.json has no draft_vocab_size: the server reads it and dies"
        yield _fail(
            what, f"keys: {', '.join(sorted(config))}", "add it: lm_head's rows, or null to use the target's head"
        )
    layers = _layers(config)
    if layers > 1:
        several = {"old": [f"config.json: num_hidden_layers: {layers}"], "new": []}
        yield from case.judge(several.__getitem__, "takes drafts of one layer only", "upgrade to 0.5.12")


def _fit(case: _Case) -> Iterator[Finding]:
    """Width and vocabulary are the target's: it feeds its states in, and takes its own token ids out."""
    if not case.target:
        remedy = "name a target whose config.json can be read"
        yield Finding(
            CHECK, "UNKNOWN", "the draft was not compared with its target, whose config is not known", "", remedy
        )
        return
    hidden = case.number("target_hidden_size") or case.number("hidden_size")
    for key, ours in (("hidden_size", hidden), ("vocab_size", case.number("vocab_size"))):
        theirs = _number(case.target, key)
        if None not in (ours, theirs) and ours != theirs:
            what = f"the draft was made for a target of {key} {ours}, this one has {theirs}"
            yield _fail(what, f"draft {ours}, target {theirs}", "take the draft that was trained for this target")


def _aux_layers(case: _Case) -> Iterator[Finding]:
    """Captured is the input of layer id + 1 (models/llama.py set_eagle3_layers_to_capture), so -1 means embeddings."""
    ids, layers = _aux_ids(case.draft.config), _number(case.target, "num_hidden_layers")
    wrong = [number for number in ids if type(number) is not int or not -1 <= number < (layers or number + 1)]
    if wrong:
        what = f"aux layers {wrong} do not exist in the target, which has {layers}"
        yield _fail(what, f"eagle_aux_hidden_state_layer_ids: {ids}", "write the ids that the draft was trained with")


def _place(name: str, generation: Generation, config: Mapping[str, Any]) -> str | None:
    """Where the loader puts a tensor, in the portable spelling; None: dropped (models/llama_eagle3.py load_weights)."""
    if "d2t" in name or "t2d" in name:
        return "d2t" if "d2t" in name else "t2d"
    if generation == "new":
        for number, legacy in enumerate(("low", "mid", "high")):
            name = name.replace(f"aux_norm_{legacy}", f"fc_norm.{number}")
        name = name.replace("midlayer", "layers.0").replace("layers.0.", "midlayer.", 1)
    name = re.sub(r"^model\.(?!lm_head)", "", name)
    return name if name in _parameters(generation, config) else None


def _parameters(generation: Generation, config: Mapping[str, Any]) -> set[str]:
    """Parameters of the class, stacked ones both whole and in their parts."""
    names = {"embed_tokens.weight", "fc.weight", "norm.weight", "lm_head.weight"}
    names |= {f"midlayer.{part}" for part in LAYER}
    if config.get("bias"):
        names.add("fc.bias")
    if generation == "old":
        return names
    names |= {f"layers.{layer}.{part}" for layer in range(1, _layers(config)) for part in LAYER}
    if config.get("fc_norm") or config.get("use_aux_norm"):
        names |= {f"fc_norm.{number}.weight" for number in range(_aux(generation, config))}
    if _dict(config, "eagle_config").get("norm_before_fc", config.get("norm_before_fc")):
        names.add("input_norm.weight")  # since 0.5.18
    return names


def _aux(generation: Generation, config: Mapping[str, Any]) -> int:
    """How many layers `fc` fuses: always 3 in the old generation."""
    if generation == "old":
        return 3
    return _number(config, "num_aux_hidden_states") or len(_aux_ids(config)) or 3


def _layers(config: Mapping[str, Any]) -> int:
    """Layers of the draft; a number beyond belief is as good as some."""
    return min(max(_number(config, "num_hidden_layers") or 1, 1), 64)


def _portable(name: str) -> str:
    """The spelling that every version knows; `hooks/fix_eagle3_keys` writes the same."""
    return re.sub(r"^layers\.0\.", "midlayer.", re.sub(r"^model\.", "", name))


def _dropped(case: _Case) -> Iterator[Finding]:
    """A name that is no parameter, as it is or after `model.`, is passed over in silence."""
    config = case.draft.config
    names = [name for name in case.draft.tensors if not HARMLESS.search(name)]

    def dropped(generation: Generation) -> list[str]:
        return [f"{name} -> dropped" for name in names if _place(name, generation, config) is None]

    remedy = "convert the draft, or train it, for this class"
    if all(_place(_portable(name), "new", config) for name in names):
        remedy = "upgrade to 0.5.12 or later"
    if all(_place(_portable(name), "old", config) for name in names):
        remedy = f"rename them to midlayer.*, without model.: {HOOK}"
    yield from case.judge(dropped, "drops tensors of the draft without a word: what they are for stays random", remedy)


def _missing(case: _Case) -> Iterator[Finding]:
    """A parameter that no tensor fills keeps its random start; nothing reports it."""
    config = case.draft.config
    there = {_place(_portable(name), "new", config) for name in case.draft.tensors}

    def missing(generation: Generation) -> list[str]:
        needed = _parameters(generation, config) - {"embed_tokens.weight"}  # the target's are used
        # only the first layer takes embeddings in
        needed = {name for name in needed if not re.fullmatch(r"layers\.\d+\.input_layernorm\.weight", name)}
        if config.get("tie_word_embeddings") or config.get("draft_vocab_size", 0) is None:
            needed.discard("lm_head.weight")  # the target's head is used
        for whole, parts in FUSED.items():
            filled = {name for name in needed if name.endswith(whole)} & there
            needed -= {name.replace(whole, part) for name in filled for part in parts}
            needed = {name for name in needed if not name.endswith(whole)}
        return [f"{name} <- nothing" for name in sorted(needed - there)]

    yield from case.judge(
        missing, "finds no tensor for parameters: they stay random", "save the draft with all of them"
    )


def _shapes(case: _Case) -> Iterator[Finding]:
    """A shape that differs stops the server: "Attempted to load weight" (model_loader/weight_utils.py)."""

    def differing(generation: Generation) -> list[str]:
        wanted = _expected(generation, case.draft.config)
        placed = {name: _place(name, generation, case.draft.config) for name in case.draft.tensors}
        pairs = [(name, case.draft.tensors[name].shape, wanted.get(place or "")) for name, place in placed.items()]
        return [
            f"{name}: {list(ours)}, the server builds {list(theirs)}"
            for name, ours, theirs in pairs
            if theirs and ours != theirs
        ]

    what = "builds other shapes from config.json than the draft's tensors have, and will not start"
    yield from case.judge(differing, what, "mend hidden_size, target_hidden_size, draft_vocab_size or the aux layers")


def _expected(generation: Generation, config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Shapes by portable name; what config.json leaves open is left out."""
    hidden, wide = _number(config, "hidden_size"), _number(config, "intermediate_size")
    heads = _number(config, "num_attention_heads")
    if hidden is None or wide is None or not heads:
        return {}
    head = _number(config, "head_dim") or hidden // heads
    keys = head * (_number(config, "num_key_value_heads") or heads)
    fused = _aux(generation, config) * (_number(config, "target_hidden_size") or hidden)
    shapes = {"fc.weight": (hidden, fused), "norm.weight": (hidden,), "input_norm.weight": (fused,)}
    rows = _number(config, "draft_vocab_size") or _number(config, "vocab_size")
    if rows is not None and not config.get("tie_word_embeddings"):
        shapes["lm_head.weight"] = (rows, hidden)
    for layer in range(_layers(config)):
        prefix, width = (f"layers.{layer}", hidden) if layer else ("midlayer", 2 * hidden)
        rows_in = [(head * heads, width), (keys, width), (keys, width), (hidden, head * heads)]
        shapes |= dict(
            zip(
                (f"{prefix}.{part}" for part in PROJECTIONS),
                [*rows_in, (wide, hidden), (wide, hidden), (hidden, wide)],
                strict=True,
            )
        )
        shapes |= {f"{prefix}.{part}": (hidden,) for part in NORMS}
    return shapes


def _vocabulary_map(case: _Case) -> Iterator[Finding]:
    """The server takes d2t as offsets: target id = draft id + d2t[draft id] (models/llama_eagle3.py load_weights)."""
    rows, vocabulary = case.number("draft_vocab_size"), case.number("vocab_size")
    tensor = next((tensor for name, tensor in case.draft.tensors.items() if "d2t" in name), None)
    if tensor is None:
        if rows is not None and vocabulary is not None and rows < vocabulary:
            what = "d2t is missing: the draft's token ids would be taken for the target's"
            yield _fail(what, f"draft_vocab_size {rows}, vocab_size {vocabulary}", "save the draft with its d2t")
        return
    if tensor.dtype not in INTEGERS:
        yield _fail("d2t does not hold integers", f"dtype {tensor.dtype}", "save it as I64")
    elif tensor.shape != (rows or vocabulary,):
        what = f"d2t maps {list(tensor.shape)} draft tokens, the draft has {rows or vocabulary}"
        yield _fail(what, f"draft_vocab_size {rows}", "take d2t and lm_head from the same training")
    elif case.draft.d2t is None:
        what = f"cannot tell whether d2t holds offsets: it is larger than {SMALL} bytes"
        yield Finding(CHECK, "UNKNOWN", what, f"shape {list(tensor.shape)}", "a map of tokens is that of another model")
    else:
        yield from _offsets(case.draft.d2t, case.draft.t2d, _number(case.target, "vocab_size") or vocabulary)


def _offsets(d2t: Sequence[int], t2d: frozenset[int] | None, vocabulary: int | None) -> Iterator[Finding]:
    evidence = f"d2t: {list(d2t[:6])} ... {list(d2t[-2:])}" + ("" if t2d is None else f"; t2d: {sorted(t2d)[:6]} ...")
    kind = _kind(d2t, t2d, vocabulary)
    if kind == "absolute":
        yield _fail(
            "d2t holds target ids, the server wants offsets (target id - draft id)", evidence, "subtract arange"
        )
    elif kind == "neither":
        remedy = "look at how d2t was made: d2t[i] + i must be the target's id of draft token i"
        yield Finding(CHECK, "UNKNOWN", "cannot tell whether d2t holds offsets", evidence, remedy)


def _kind(
    d2t: Sequence[int], t2d: frozenset[int] | None, vocabulary: int | None
) -> Literal["offsets", "absolute", "neither"]:
    """By t2d where it is there, as sets, since a healthy map may be unsorted; else by range and by how it grows."""
    targets = [number + offset for number, offset in enumerate(d2t)]
    if t2d is not None:
        return "offsets" if set(targets) == t2d else "absolute" if set(d2t) == t2d else "neither"

    def possible(ids: Sequence[int]) -> bool:
        inside = vocabulary is None or max(ids, default=0) < vocabulary
        return inside and min(ids, default=0) >= 0 and len(set(ids)) == len(ids)

    if possible(targets) == possible(d2t):
        return "neither"
    return "offsets" if possible(targets) else "absolute"
