"""A draft as its files say, read once: headers of all shards, config, and the two vocabulary maps."""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from deploy.checkpoint import eagle3, manifest
from deploy.host import header
from deploy.host.header import HeaderError, Tensor

INTEGERS = {"I64": "q", "I32": "i", "I16": "h", "I8": "b", "U64": "Q", "U32": "I", "U16": "H", "U8": "B"}
SMALL = 64 << 20  # bytes: a map of eight million tokens


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


def load_facts(path: Path) -> DraftFacts:
    """Read a local draft's headers, config and vocabulary maps. Raises ConfigError where there is no checkpoint."""
    source = manifest.source(path)
    shards = [name for name in source.files if name.endswith(".safetensors") and "/" not in name]
    if not shards and any(name.endswith(".gguf") for name in source.files):
        return DraftFacts(str(path), {}, {}, format="gguf")
    broken: list[str] = [] if shards else ["there is no .safetensors file in it"]
    config = _json(source.root / "config.json", broken)
    if "model.safetensors.index.json" in source.files:
        index = eagle3.mapping(_json(source.root / "model.safetensors.index.json", broken), "weight_map")
        broken += [f"{name}: named by the index, missing" for name in sorted({*map(str, index.values())} - {*shards})]
    tensors: dict[str, Tensor] = {}
    maps: dict[str, list[int] | None] = {"d2t": None, "t2d": None}
    for shard in shards:
        try:
            tensors.update(_tensors(source.root / shard, maps))
        except (HeaderError, OSError) as error:
            broken.append(str(error))
    t2d = None if maps["t2d"] is None else frozenset(i for i, known in enumerate(maps["t2d"]) if known)
    return DraftFacts(str(path), tensors, config, maps["d2t"], t2d, tuple(broken))


def _tensors(shard: Path, maps: dict[str, list[int] | None]) -> Mapping[str, Tensor]:
    """The tensors of a shard; a vocabulary map among them is read into `maps`."""
    found = header.read(shard)
    for name in found.tensors:
        key = next((key for key in maps if key in name), "")
        if key:
            maps[key] = _integers(shard, found, name)
    return found.tensors


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
