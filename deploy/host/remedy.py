"""What would repair an EAGLE-3 draft, from what its files say: decided here, done by `repair.py`. Reads nothing.

A part of programs that run on hosts (standard library, Python 3.8 and later), so that a hook decides as the tool does.
Sources: SGLang's loaders, models/llama_eagle3.py and models/kimi_k25_eagle3.py, wheels 0.5.8 to 0.5.23.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from deploy.host.convert import Conversion, converted

CODES = {"I64": "q", "I32": "i", "I16": "h", "I8": "b", "U64": "Q", "U32": "I", "U16": "H", "U8": "B"}
LAYERS = re.compile(r"(?:model\.)?layers\.(\d+)\.")
NO_DRAFT = "this is no EAGLE-3 draft in safetensors"
WHOLE = "copy or save the checkpoint again; what is in it is not known"


@dataclass(frozen=True)
class Setting:
    """One key of config.json, by its path; `old` and `new` hold its value, or nothing where it is absent."""

    key: tuple[str, ...]
    old: tuple[Any, ...]
    new: tuple[Any, ...]


@dataclass(frozen=True)
class Patch:
    """Other bytes for a small tensor: what they mean, the sha256 of those that are there, and the new ones."""

    what: str
    sha256: str
    content: bytes


@dataclass(frozen=True)
class Refusal:
    """What no repair mends, why, and what to do instead."""

    what: str
    why: str = ""
    remedy: str = ""


@dataclass(frozen=True)
class Plan:
    """Renames and patches by file and by the tensor's old name; settings of config.json. Nothing is done of a plan
    with refusals.
    """

    rename: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    patch: Mapping[str, Mapping[str, Patch]] = field(default_factory=dict)
    settings: tuple[Setting, ...] = ()
    notes: tuple[str, ...] = ()
    refusals: tuple[Refusal, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.rename or self.patch or self.settings)


def plan(facts: Any, target: Mapping[str, Any] | None = None, engine: str = "", version: Sequence[int] = ()) -> Plan:
    """The repair of a checkpoint (`deploy/checkpoint/facts.py`, or anything with its fields) beside a target's config.

    `version` as numbers, empty where any is to be served with. What is planned for a draft that was repaired: nothing.
    """
    if facts.format == "pickle":
        return Plan(
            refusals=(
                Refusal(
                    "the weights are pickles, which run code when they are opened", "", "save them as .safetensors"
                ),
            )
        )
    if facts.format == "gguf":
        return Plan(notes=(NO_DRAFT,))
    broken = [problem for problem in facts.problems if problem.outcome]
    broken = [problem for problem in broken if (problem.file, problem.what) != ("config.json", "is missing")]
    if broken:
        why = "\n".join(f"{problem.file}: {problem.what}" if problem.file else problem.what for problem in broken)
        return Plan(refusals=(Refusal("the files are broken, which no repair mends", why, WHOLE),))
    if not any(portable(name).endswith("hidden_norm.weight") for name in facts.tensors):
        return Plan(notes=(NO_DRAFT,))
    target = _text(target)
    fitted = converted(facts, {portable(name): facts.tensors[name] for name in facts.tensors}, target, engine, version)
    vocabulary = (target or {}).get("vocab_size") or fitted.config.get("vocab_size")
    rename, collisions = _renames(facts, fitted, engine)
    patch, undecided = _offsets(facts, vocabulary if type(vocabulary) is int else None)
    return Plan(
        rename,
        patch,
        tuple(_settings(facts.config, fitted.config)),
        tuple(fitted.notes),
        tuple(Refusal(*said) for said in (*fitted.refusals, *collisions, *undecided)),
    )


def _text(target: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Of a target that sees as well, the text model's config under the class that holds it, which the server asks."""
    inner = target.get("text_config") if target else None
    return (
        {**target, **inner, "architectures": target.get("architectures")}
        if target and isinstance(inner, dict)
        else target
    )


def seen(answer: Mapping[str, Any]) -> SimpleNamespace:
    """What `checkpoint.py` answered, with the fields that `plan` looks at."""
    tensors = {
        name: SimpleNamespace(dtype=dtype, shape=tuple(shape), file=file)
        for file, lines in answer["tensors"].items()
        for name, (dtype, shape, _, _) in lines.items()
    }
    problems = [SimpleNamespace(what=what, file=file, outcome=outcome) for what, file, _, outcome in answer["problems"]]
    t2d = answer["t2d"]
    return SimpleNamespace(
        format=answer["format"],
        tensors=tensors,
        problems=problems,
        config=answer["config"],
        d2t=answer["d2t"],
        t2d=None if t2d is None else frozenset(t2d),
    )


def task(what: Plan) -> dict[str, Any]:
    """A plan as `repair.py` takes it."""
    patch = {
        file: {name: [one.sha256, base64.b64encode(one.content).decode()] for name, one in patches.items()}
        for file, patches in what.patch.items()
    }
    settings = [[list(one.key), list(one.old), list(one.new)] for one in what.settings]
    return {"rename": {file: dict(names) for file, names in what.rename.items()}, "patch": patch, "settings": settings}


def portable(name: str) -> str:
    """The spelling that loads everywhere: `midlayer.`, and no `model.` before it, which the MLA class refuses."""
    return re.sub(r"^layers\.0\.", "midlayer.", re.sub(r"^model\.", "", name))


def _renames(facts: Any, fitted: Conversion, engine: str) -> tuple[dict[str, dict[str, str]], list[tuple[str, ...]]]:
    found: dict[str, dict[str, str]] = {}
    came_from: dict[str, list[str]] = {}
    every = {portable(name) for name in facts.tensors}
    for name, tensor in facts.tensors.items():
        new = portable(name)
        alone = new.replace(".input_layernorm.", ".hidden_norm.")
        if fitted.layers > 1 and engine != "vllm" and LAYERS.match(new) and alone not in every:
            new = alone  # layers above the first have one norm, which SGLang calls so
        came_from.setdefault(new, []).append(name)
        if new != name:
            found.setdefault(tensor.file, {})[name] = new
    twice = {new: old for new, old in came_from.items() if len(old) > 1}
    if not twice:
        return found, []
    why = "\n".join(f"{' and '.join(old)} -> {new}" for new, old in twice.items())
    remedy = "save the draft with one of them only; which is the trained one cannot be told from here"
    return found, [(f"several tensors would get the same name: {', '.join(twice)}", why, remedy)]


def _offsets(facts: Any, vocabulary: int | None) -> tuple[dict[str, dict[str, Patch]], list[tuple[str, ...]]]:
    """Offsets in the place of absolute ids; never where the kind of the map is not sure."""
    name = next((name for name in facts.tensors if "d2t" in name), None)
    if name is None:
        return {}, []
    tensor = facts.tensors[name]
    code = CODES.get(tensor.dtype)
    if facts.d2t is None or code is None:
        what = "not of integers" if code is None else "longer than any vocabulary, or not one tensor's numbers"
        shape = list(tensor.shape)
        return {}, [(f"the vocabulary map is {what}", f"{name}: {tensor.dtype} {shape}", "save it as int64")]
    kind = map_kind(facts.d2t, facts.t2d, vocabulary)
    if kind == "offsets":
        return {}, []
    first = f"{name}: {', '.join(map(str, facts.d2t[:6]))}, ..."
    if kind == "neither":
        what = "whether the vocabulary map holds offsets or ids cannot be told"
        remedy = "save it anew: d2t[i] = target id - i"
        known = "as either, it is not what t2d says" if facts.t2d is not None else "there is no t2d that would tell"
        return {}, [(what, f"{first} ({known})", remedy)]
    offsets = [number - place for place, number in enumerate(facts.d2t)]
    if code.isupper() and min(offsets, default=0) < 0:
        return {}, [("the vocabulary map needs negative offsets", f"{first} of {tensor.dtype}", "save it as int64")]
    old, new = (struct.pack(f"<{len(offsets)}{code}", *values) for values in (facts.d2t, offsets))
    patch = Patch("absolute ids -> offsets", hashlib.sha256(old).hexdigest(), new)
    return {tensor.file: {name: patch}}, []


def map_kind(d2t: Sequence[int], t2d: frozenset[int] | None, vocabulary: int | None) -> str:
    """`offsets`, `absolute` or `neither`: by t2d where it is there, as sets, since a healthy map may be unsorted; else
    by range, and by how it grows.

    Ids of targets are each another one, and inside the vocabulary. Where neither reading is that, the vocabulary is
    another's: offsets of a sorted map never fall and repeat themselves, ids always rise.
    """
    targets = [number + offset for number, offset in enumerate(d2t)]
    if t2d is not None:
        return "offsets" if set(targets) == t2d else "absolute" if set(d2t) == t2d else "neither"

    def possible(ids: Sequence[int]) -> bool:
        inside = vocabulary is None or max(ids, default=0) < vocabulary
        return inside and min(ids, default=0) >= 0 and len(set(ids)) == len(ids)

    if possible(targets) != possible(d2t):
        return "offsets" if possible(targets) else "absolute"
    steps = [d2t[place] - d2t[place - 1] for place in range(1, len(d2t))]
    if possible(targets) or min(steps, default=0) < 0:
        return "neither"
    return "offsets" if 0 in steps else "absolute"


def _settings(old: Mapping[str, Any], new: Mapping[str, Any], above: tuple[str, ...] = ()) -> list[Setting]:
    found = []
    for key in [*old, *(key for key in new if key not in old)]:
        path, was, is_ = (*above, key), old.get(key), new.get(key)
        if isinstance(was, dict) and isinstance(is_, dict):
            found += _settings(was, is_, path)
        elif key not in old or key not in new or json.dumps(was) != json.dumps(is_):
            found.append(Setting(path, (was,) if key in old else (), (is_,) if key in new else ()))
    return found
