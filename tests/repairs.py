"""A small checkpoint in two shards, the repair that it wants, and how one sees that it was done."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import struct
from pathlib import Path
from typing import Any

from deploy.host import header
from deploy.host.header import BITS

RENAMED = {"layers.0.w": "midlayer.weight", "model.b": "b.renamed"}  # longer, so that they need room


def written(path: Path, sizes: dict[str, tuple[str, list[int]]], padding: int = 0, metadata: Any = None) -> bytes:
    """A file of tensors with bytes of their own, its header with `padding` more spaces than usual; all of it."""
    fields: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    end = 0
    for name, (dtype, shape) in sizes.items():
        start, end = end, end + math.prod(shape) * BITS[dtype] // 8
        fields[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(fields, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8 + padding)  # data begin at a multiple of 8, as safetensors itself writes them
    content = struct.pack("<Q", len(text)) + text + os.urandom(end)
    path.write_bytes(content)
    return content


def draft(folder: Path, *, padding: int = 0, size: int = 70_000) -> dict[str, bytes]:
    """A checkpoint in two shards; its files."""
    folder.mkdir(parents=True)
    sizes = {"layers.0.w": ("U8", [size]), "d2t": ("I64", [4]), "fc": ("F32", [3, 5])}
    written(folder / "a.safetensors", sizes, padding)
    written(folder / "b.safetensors", {"model.b": ("U8", [size])}, padding)
    (folder / "config.json").write_text('{"x": null, "y": {"z": 1}}')
    places = {"layers.0.w": "a.safetensors", "model.b": "b.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return contents(folder)


def contents(folder: Path) -> dict[str, bytes]:
    """The visible files of a folder."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name[0] != "."}


def task(folder: Path, mode: str = "in-place", **more: Any) -> dict[str, Any]:
    """Rename both shards, set d2t to zeros, change the config; as for `draft`."""
    found = header.read(folder / "a.safetensors")
    old = header.load(folder / "a.safetensors", found, "d2t")
    return {
        "path": str(folder),
        "mode": mode,
        "rename": {"a.safetensors": {"layers.0.w": RENAMED["layers.0.w"]}, "b.safetensors": {"model.b": "b.renamed"}},
        "patch": {"a.safetensors": {"d2t": [hashlib.sha256(old).hexdigest(), base64.b64encode(bytes(32)).decode()]}},
        "settings": [[["x"], [None], []], [["y", "z"], [1], [2]], [["new"], [], [[1]]]],
        **more,
    }


def other_map(folder: Path) -> None:
    """Put another vocabulary map into its place."""
    found = header.read(folder / "a.safetensors")
    with (folder / "a.safetensors").open("r+b") as file:
        file.seek(found.data_start + found.tensors["d2t"].start)
        file.write(b"\1" * 32)


def sound(folder: Path, before: dict[str, bytes]) -> None:
    """All of the task was done, and the data are what they were."""
    for name in ("a.safetensors", "b.safetensors"):
        new, old = header.read(folder / name), parsed(before[name])
        assert {RENAMED.get(tensor, tensor) for tensor in old} == set(new.tensors)
        for (tensor, line), content in zip(new.tensors.items(), old.values(), strict=True):
            assert header.load(folder / name, new, tensor) == (bytes(32) if tensor == "d2t" else content), line
    assert json.loads((folder / "config.json").read_text()) == {"y": {"z": 2}, "new": [1]}
    places = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    assert places == {"midlayer.weight": "a.safetensors", "b.renamed": "b.safetensors"}


def parsed(content: bytes) -> dict[str, bytes]:
    length = int.from_bytes(content[:8], "little")
    lines = json.loads(content[8 : 8 + length])
    data = content[8 + length :]
    return {name: data[slice(*line["data_offsets"])] for name, line in lines.items() if name != "__metadata__"}


def done(answer: dict[str, Any]) -> dict[str, Any]:
    assert "error" not in answer, answer
    return answer
