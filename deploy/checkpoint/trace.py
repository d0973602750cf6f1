"""Where a server's loader puts each tensor of a checkpoint, and which of its parameters nothing fills.

The same type for what our table of loaders says (`checkpoint/loaders`) and for what the installed engine itself did
(`checkpoint/exact.py`), so that the two are compared name by name.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from deploy.checkpoint.config import Config
from deploy.checkpoint.facts import Tensor
from deploy.checkpoint.loaders import Loader, Parameter

How = Literal[
    "as-is", "model. prefix", "legacy name", "stacked", "fused", "vocabulary map", "ignored", "dropped", "refused"
]


@dataclass(frozen=True)
class Landing:
    """One tensor: the parameter that it fills under its full name in the server's module, whole or as one shard of it.

    `shard` is "q", "k", "v", "0" or "1" of a stacked parameter, "q_a" or "kv_a" of a fused pair. `why` is what the
    server says where it refuses or warns, and what becomes of a tensor that is taken only in part.
    """

    tensor: str
    parameter: str | None
    how: How
    shard: str | None = None
    why: str = ""

    @property
    def place(self) -> str:
        """Where it goes, in words: the parameter with its shard, refused, or nowhere."""
        if self.how == "refused" or self.parameter is None:
            return "refused" if self.how == "refused" else "nowhere"
        return f"{self.parameter}[{self.shard}]" if self.shard is not None else self.parameter


@dataclass(frozen=True)
class Trace:
    """What a loader makes of a checkpoint. `shapes` are those that the class builds from config.json.

    `unfilled` are parameters that stay as they were made; the embeddings are not among them where the server takes the
    target's. `error` is what the constructor or the loader raised: such a server will not start.
    """

    landings: tuple[Landing, ...]
    unfilled: tuple[str, ...] = ()
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    error: str = ""

    @property
    def dropped(self) -> tuple[str, ...]:
        """Tensors that go nowhere, and of which the server says nothing that anybody reads."""
        return tuple(landing.tensor for landing in self.landings if landing.how == "dropped")


def differences(table: Trace, exact: Trace) -> list[str]:
    """What a table says otherwise than the engine itself, a line each: where tensors go, and what is left unfilled."""
    if bool(table.error) != bool(exact.error):
        return [f"the table: {table.error or 'it loads'}; the engine: {exact.error or 'it loads'}"]
    ours = {landing.tensor: landing.place for landing in table.landings}
    theirs = {landing.tensor: landing.place for landing in exact.landings}
    lines = [
        f"{name}: the table says {ours.get(name)}, the engine {theirs.get(name)}"
        for name in {**ours, **theirs}
        if ours.get(name) != theirs.get(name)
    ]
    lines += [f"{name}: only the table leaves it unfilled" for name in table.unfilled if name not in exact.unfilled]
    lines += [f"{name}: only the engine leaves it unfilled" for name in exact.unfilled if name not in table.unfilled]
    return lines


def trace(loader: Loader, tensors: Mapping[str, Tensor], config: Config) -> Trace:
    """What this row of our table makes of these tensors. Pure; any config gives an answer.

    Where the constructor raises, nothing is loaded: then there are no landings.
    """
    error = loader.stops(config) or _no_map(loader, tensors)
    if error:
        return Trace((), error=error)
    parameters = loader.parameters(config)
    unasked = loader.unasked(config)
    landed = {
        name: Landing(name, None, "dropped")
        if unasked and re.search(unasked, name)
        else _land(loader, parameters, name, tensor.shape)
        for name, tensor in tensors.items()
    }
    landed |= _paired(parameters, landed, tensors)
    return Trace(
        tuple(landed.values()),
        tuple(_unfilled(parameters, landed.values(), borrowed(loader, config, tensors))),
        {name: parameter.shape for name, parameter in parameters.items()},
    )


def _no_map(loader: Loader, tensors: Mapping[str, Tensor]) -> str:
    """SGLang adds 0, 1, ... to the map, as many as it is long: one number has no length, two axes have to fit."""
    pattern, _ = loader.vocabulary_map
    for name, tensor in tensors.items() if loader.counts_up else ():
        fits = tensor.shape and (tensor.shape[-1] in (1, tensor.shape[0]) or tensor.shape[0] == 1)
        if re.search(pattern, name) and not fits:
            kind = f"has the shape {list(tensor.shape)}" if tensor.shape else "is one number"
            return f"{name} {kind}, and no table"
    return ""


def _land(loader: Loader, parameters: Mapping[str, Parameter], tensor: str, shape: tuple[int, ...]) -> Landing:
    """Where a tensor goes by itself; a half of a fused pair, by what both are for."""
    name = tensor
    for old, new in loader.renames:
        name = re.sub(old, new, name)
    pattern, buffer = loader.vocabulary_map
    if re.search(pattern, name):
        there = Landing(tensor, buffer, "vocabulary map")
        if loader.counts_up:
            return there
        there = replace(there, parameter=_known(loader, parameters, buffer))
        return _fitted(there, parameters, shape) or _lost(loader, parameters, tensor, buffer)
    if re.search(loader.ignored, name):
        return Landing(tensor, None, "ignored")
    renamed = name != tensor
    if loader.prefix == "always" and not re.search(loader.bare, name):
        name = f"model.{name}"
    for part, whole, shard in loader.stacked:
        if re.search(part, name):
            stacked = _known(loader, parameters, re.sub(part, whole, name))
            landing = _fitted(Landing(tensor, stacked, "stacked", shard), parameters, shape)
            return landing or _lost(loader, parameters, tensor, re.sub(part, whole, name))
    for part, whole, shard in loader.halves:
        if part in name:
            return Landing(tensor, name.replace(part, whole), "fused", shard)
    found = _known(loader, parameters, name)
    how: How = "legacy name" if renamed else "as-is" if found == tensor else "model. prefix"
    return _fitted(Landing(tensor, found, how), parameters, shape) or _lost(loader, parameters, tensor, name)


def _known(loader: Loader, parameters: Mapping[str, Parameter], name: str) -> str | None:
    """The parameter of this name, or of `model.` before it where the loader tries both."""
    names = [name, f"model.{name}"] if loader.prefix == "optional" else [name]
    return next((name for name in names if name in parameters), None)


def _fitted(landing: Landing, parameters: Mapping[str, Parameter], shape: tuple[int, ...]) -> Landing | None:
    """The landing as its shapes let it be; None where there is no such parameter."""
    if landing.parameter is None:
        return None
    parameter = parameters[landing.parameter]
    shard = landing.shard if landing.shard in parameter.shards else None
    fate, why = parameter.fit(shape, shard)
    return replace(landing, how="refused" if fate == "refused" else landing.how, why=why)


def _lost(loader: Loader, parameters: Mapping[str, Parameter], tensor: str, name: str) -> Landing:
    """A tensor whose name is no parameter's. A loader that refuses them lets a bias pass, of a module that is there."""
    module, _, last = name.rpartition(".")
    bias = last == "bias" and any(known.startswith(f"{module}.") for known in parameters)
    if loader.unknown == "refused" and not bias:
        return Landing(tensor, None, "refused", why=f"there is no module or parameter named {name!r}")
    return Landing(tensor, None, "dropped", why="skipping unexpected weight" if loader.unknown == "warned" else "")


def _paired(
    parameters: Mapping[str, Parameter],
    landed: Mapping[str, Landing],
    tensors: Mapping[str, Tensor],
) -> Iterator[tuple[str, Landing]]:
    """What becomes of the halves of fused pairs: the second to come is joined to the first, and they are one tensor;
    one alone is lost without a word.
    """
    halves = [landing for landing in landed.values() if landing.how == "fused"]
    yield from ((half.tensor, replace(half, parameter=None, how="dropped", shard=None)) for half in halves)
    waiting: dict[str | None, dict[str | None, Landing]] = {}
    for half in halves:
        pair = waiting.setdefault(half.parameter, {})
        pair[half.shard] = half
        if len(pair) == 2:
            del waiting[half.parameter]
            shapes = [tensors[one.tensor].shape for one in pair.values()]
            yield from _joined(parameters.get(half.parameter or ""), list(pair.values()), shapes)


def _joined(
    whole: Parameter | None, pair: Sequence[Landing], shapes: Sequence[tuple[int, ...]]
) -> Iterator[tuple[str, Landing]]:
    """Two halves as one tensor. That they fit each other is asked even where there is no such parameter."""
    if whole is None and _stacks(shapes, (sum(shape[0] for shape in shapes if shape), *shapes[0][1:])):
        return
    if whole and _stacks(shapes, whole.shape):
        yield from ((half.tensor, half) for half in pair)
        return
    told = " and ".join(str(list(shape)) for shape in shapes)
    why = f"{told}, the server builds {list(whole.shape)}" if whole else f"{told} cannot be joined"
    yield from ((half.tensor, replace(half, how="refused", why=why)) for half in pair)


def _stacks(shapes: Sequence[tuple[int, ...]], whole: tuple[int, ...]) -> bool:
    """Whether these, one on top of the other, make the whole."""
    return all(shape[1:] == whole[1:] and shape for shape in shapes) and sum(shape[0] for shape in shapes) == whole[0]


def borrowed(loader: Loader, config: Config, tensors: Iterable[str]) -> set[str]:
    """Parameters that are the target's: the embeddings, if they are as wide as its own, and the head where the draft
    says that it has none; or what no tensor is named for, whether it has a place or not.
    """
    width = config.get("target_hidden_size")
    found = {loader.vocabulary_map[1]}
    if width in (None, config.get("hidden_size", width)):
        found.add("model.embed_tokens.weight")
    if loader.borrows_head or config.get("draft_vocab_size") is None:
        found.add("lm_head.weight")
    own = [part for part in ("embed_tokens", "lm_head") if any(part in name for name in tensors)]
    return {name for name in found if not (loader.borrows_head and any(part in name for part in own))}


def _unfilled(
    parameters: Mapping[str, Parameter], landings: Iterable[Landing], borrowed: Container[str]
) -> Iterator[str]:
    """Parameters that no tensor fills, or not in all their shards."""
    filled = {(landing.parameter, landing.shard) for landing in landings if landing.how != "refused"}
    for name, parameter in parameters.items():
        shards = parameter.shards or (("q_a", "kv_a") if (name, "q_a") in filled else ())
        whole = (name, None) in filled or (shards and all((name, shard) in filled for shard in shards))
        if not whole and name not in borrowed:
            yield name
