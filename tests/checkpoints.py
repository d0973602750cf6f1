"""Small checkpoints for tests: headers of any kind, healthy or not, and folders of them."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deploy.host.header import BITS

Tensors = Mapping[str, tuple[str, list[int]]]  # name -> dtype, shape


def entry(start: int, end: int, shape: list[Any] | None = None, dtype: str = "U8") -> dict[str, Any]:
    return {"dtype": dtype, "shape": [end - start] if shape is None else shape, "data_offsets": [start, end]}


def raw(text: bytes, data: bytes = b"", length: int | None = None) -> bytes:
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def packed(fields: dict[str, Any], data: bytes = b"") -> bytes:
    return raw(json.dumps(fields).encode(), data)


def usual(tensors: Tensors, metadata: Mapping[str, str] | None = None) -> tuple[bytes, int]:
    """(a header as safetensors itself writes it, bytes of data): the length, compact JSON, padded to 8 bytes."""
    fields: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for name, (dtype, shape) in tensors.items():
        start, end = end, end + math.prod(shape) * BITS[dtype] // 8
        fields[name] = entry(start, end, shape, dtype)
    text = json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
    return raw(text + b" " * (-len(text) % 8)), end


def weights(path: Path, tensors: Tensors, data: bytes | None = None) -> None:
    """A file of these tensors, its data sparse zeros unless they are given."""
    head, size = usual(tensors)
    with path.open("wb") as file:
        file.write(head + (data or b""))
        file.truncate(len(head) + size)


def sharded(folder: Path, shards: Mapping[str, Tensors], config: Mapping[str, Any] | None = None) -> Path:
    """A folder of shards with their index."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config or {"architectures": ["Any"], "hidden_size": 8}))
    for name, tensors in shards.items():
        weights(folder / name, tensors)
    index = {tensor: name for name, tensors in shards.items() for tensor in tensors}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    return folder


def experts(layers: range, experts: int, hidden: int = 64) -> dict[str, tuple[str, list[int]]]:
    """Tensors of layers with experts, named as they usually are."""
    return {
        f"model.layers.{layer}.mlp.experts.{expert}.{part}_proj.weight": ("BF16", [hidden, hidden])
        for layer in layers
        for expert in range(experts)
        for part in ("gate", "up", "down")
    }
