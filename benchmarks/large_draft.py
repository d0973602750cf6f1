"""Drafts made of the tiny one: another of the same size, and one of many megabytes that drafts as the tiny one does."""

from __future__ import annotations

import json
import os
import random
import shutil
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from deploy.host.header import Header, Tensor, read
from tests import checkpoints

WEIGHTS = "model.safetensors"
GATE, UP, DOWN = (f"midlayer.mlp.{name}_proj.weight" for name in ("gate", "up", "down"))
FLOAT = 4  # bytes


def negated(draft: Path, folder: Path) -> Path:
    """The draft with the sign of all that its feed-forward part adds turned, in `folder`."""
    shutil.copytree(draft, folder)
    header = read(folder / WEIGHTS)
    with _at(folder / WEIGHTS, header, DOWN) as (file, tensor):
        data = file.read(tensor.end - tensor.start)
        file.seek(header.data_start + tensor.start)
        file.write(array("f", [-value for value in array("f", data)]).tobytes())
    return folder


def padded(draft: Path, folder: Path, megabytes: int) -> Path:
    """The draft with so many more neurons that it takes about `megabytes`, in `folder`. They add nothing: their gates
    are zero; the rest of their weights is random.
    """
    source = read(draft / WEIGHTS)
    units, hidden = source.tensors[GATE].shape
    wide = max(units, round(megabytes * 1e6 / (3 * FLOAT * hidden)) // 64 * 64)
    shapes = {GATE: [wide, hidden], UP: [wide, hidden], DOWN: [hidden, wide]}
    tensors = {name: (one.dtype, shapes.get(name, list(one.shape))) for name, one in source.tensors.items()}
    folder.mkdir()
    checkpoints.weights(folder / WEIGHTS, tensors)
    target = read(folder / WEIGHTS)
    blank, noise = bytes(1 << 20), _noise()
    for name in tensors:
        with _at(draft / WEIGHTS, source, name) as (file, tensor):
            data = file.read(tensor.end - tensor.start)
        rows, more = (hidden, wide - units) if name == DOWN else (1, (wide - units) * hidden)
        with _at(folder / WEIGHTS, target, name) as (file, _):
            for row in range(rows):
                file.write(data[row * len(data) // rows : (row + 1) * len(data) // rows])
                if name in shapes:
                    _fill(file, more * FLOAT, blank if name == GATE else noise)
    config = json.loads((draft / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "intermediate_size": wide}))
    return folder


@contextmanager
def _at(path: Path, header: Header, name: str) -> Iterator[tuple[BinaryIO, Tensor]]:
    """The file where a tensor's bytes begin."""
    tensor = header.tensors[name]
    with path.open("r+b" if os.access(path, os.W_OK) else "rb") as file:
        file.seek(header.data_start + tensor.start)
        yield file, tensor


def _noise() -> bytes:
    rng = random.Random(0)
    return array("f", (rng.uniform(-0.1, 0.1) for _ in range((1 << 20) // FLOAT))).tobytes()


def _fill(file: BinaryIO, left: int, block: bytes) -> None:
    while left:
        left -= file.write(block[: min(left, len(block))])
