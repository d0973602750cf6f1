"""Drafts of the tiny pair that tell the fake server how well they speculate: see `tests/fake_sglang/draft.py`."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.checkpoints import packed
from tests.project import EXAMPLES

Tensors = dict[str, tuple[dict[str, Any], bytearray]]  # name -> its entry in the header, its bytes
Change = Callable[[Tensors], None]


def draft(folder: Path, accepts: float, number: int = 0, *, change: Change | None = None, **keys: Any) -> Path:
    """The healthy draft with the mark of an accept length and of a number up to 127, in a folder of its own.

    `change` changes its tensors in place, `keys` stand in its config instead of what was there.
    """
    tensors = _read(EXAMPLES / "draft/model.safetensors")
    for entry, data in tensors.values():
        if entry["dtype"] == "F32":
            struct.pack_into("<4f", data, 0, 0.5, -0.5, accepts / 8, number / 256)
    if change:
        change(tensors)
    folder.mkdir(parents=True)
    _write(folder / "model.safetensors", tensors)
    config = json.loads((EXAMPLES / "draft/config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **keys}, indent=1))
    return folder


def other_d2t(tensors: Tensors) -> None:
    """Its last two draft tokens mean each other's target."""
    _, data = tensors["d2t"]
    one, two = struct.unpack_from("<2q", data, len(data) - 16)
    struct.pack_into("<2q", data, len(data) - 16, two + 1, one - 1)


def without(*names: str) -> Change:
    def change(tensors: Tensors) -> None:
        for name in names:
            del tensors[name]

    return change


def thinner(tensors: Tensors) -> None:
    """Its MLP has half of its intermediate size."""
    for name in ("gate_proj", "up_proj"):
        entry, data = tensors[f"midlayer.mlp.{name}.weight"]
        entry["shape"][0] //= 2
        del data[len(data) // 2 :]
    entry, data = tensors["midlayer.mlp.down_proj.weight"]
    row = 4 * entry["shape"][1]
    entry["shape"][1] //= 2
    data[:] = b"".join(data[at : at + row // 2] for at in range(0, len(data), row))


def wider(name: str) -> Change:
    """One tensor has twice as many rows."""

    def change(tensors: Tensors) -> None:
        entry, data = tensors[name]
        entry["shape"][0] *= 2
        data.extend(data)

    return change


def _read(path: Path) -> Tensors:
    raw = path.read_bytes()
    (length,) = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8 : 8 + length])
    header.pop("__metadata__", None)
    spans = {name: entry.pop("data_offsets") for name, entry in header.items()}
    data = raw[8 + length :]
    return {name: (entry, bytearray(data[slice(*spans[name])])) for name, entry in header.items()}


def _write(path: Path, tensors: Tensors) -> None:
    header, end = {}, 0
    for name, (entry, data) in tensors.items():
        header[name] = {**entry, "data_offsets": [end, end + len(data)]}
        end += len(data)
    path.write_bytes(packed(header, b"".join(bytes(data) for _, data in tensors.values())))
