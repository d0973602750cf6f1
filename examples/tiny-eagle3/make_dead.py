"""Make broken EAGLE-3 drafts from the healthy tiny ones: make_dead.py OUT [NAME...] (all of them without a NAME).

Most load without a word and are worth nothing: the target rejects what they draft, so the server answers correctly
and slowly, at an accept length of about 1. A few do not load at all. Only the standard library is used, and the
result is the same each time.
"""

from __future__ import annotations

import json
import random
import struct
import sys
from collections.abc import Callable
from math import prod
from pathlib import Path

HERE = Path(__file__).parent

Tensor = tuple[str, list[int], bytes]  # safetensors dtype, shape, little-endian data
Tensors = dict[str, Tensor]


# ---- safetensors: u64 header length, JSON header {name: {dtype, shape, data_offsets}}, data ----------------------


def read_safetensors(path: Path) -> Tensors:
    """Every tensor of a file, by name."""
    blob = path.read_bytes()
    start = 8 + struct.unpack_from("<Q", blob)[0]
    header = json.loads(blob[8:start])
    header.pop("__metadata__", None)
    return {
        name: (
            entry["dtype"],
            entry["shape"],
            blob[start + entry["data_offsets"][0] : start + entry["data_offsets"][1]],
        )
        for name, entry in header.items()
    }


def write_safetensors(path: Path, tensors: Tensors) -> None:
    """Write the tensors in the order given."""
    header, offset = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def without(name: str) -> Callable[[Tensors], Tensors]:
    """Leave one tensor out."""
    return lambda tensors: {key: value for key, value in tensors.items() if key != name}


def layer_prefix(prefix: str) -> Callable[[Tensors], Tensors]:
    """Spell the layer's keys with another prefix than `midlayer.`."""
    return lambda tensors: {key.replace("midlayer.", prefix): value for key, value in tensors.items()}


def wrong_fc(tensors: Tensors) -> Tensors:
    """Let `fc` join two hidden states instead of three."""
    dtype, (rows, columns), data = tensors["fc.weight"]
    narrow, width = columns * 2 // 3, len(data) // rows
    cut = b"".join(data[row * width : row * width + width * 2 // 3] for row in range(rows))
    return tensors | {"fc.weight": (dtype, [rows, narrow], cut)}


def absolute_d2t(tensors: Tensors) -> Tensors:
    """Let `d2t` hold the target's token ids; the format wants their distance from the draft's ids."""
    dtype, shape, data = tensors["d2t"]
    ids = [index + offset for index, offset in enumerate(struct.unpack(f"<{shape[0]}q", data))]
    return tensors | {"d2t": (dtype, shape, struct.pack(f"<{shape[0]}q", *ids))}


# ---- GGUF: header, key-value pairs, tensor infos, padding, data --------------------------------------------------

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9


class Gguf:
    """A reader that goes through a GGUF file as far as its tensor infos."""

    def __init__(self, blob: bytes) -> None:
        self.blob = blob
        self.at = 8  # behind the magic and the version

    def scalar(self, code: str) -> int:
        (value,) = struct.unpack_from(f"<{code}", self.blob, self.at)
        self.at += struct.calcsize(f"<{code}")
        return value

    def string(self) -> str:
        size = self.scalar("Q")
        self.at += size
        return self.blob[self.at - size : self.at].decode()

    def skip_value(self, kind: int) -> None:
        if kind == STRING:
            self.string()
        elif kind == ARRAY:
            inner, count = self.scalar("I"), self.scalar("Q")
            for _ in range(count):
                self.skip_value(inner)
        else:
            self.scalar(SCALARS[kind])

    def tensors(self) -> dict[str, tuple[int, int]]:
        """Name to (offset in the file, number of elements)."""
        tensor_count, pair_count = self.scalar("Q"), self.scalar("Q")
        for _ in range(pair_count):
            self.string()
            self.skip_value(self.scalar("I"))
        infos = {}
        for _ in range(tensor_count):
            name = self.string()
            shape = [self.scalar("Q") for _ in range(self.scalar("I"))]
            self.scalar("I")  # type: float32 throughout in the tiny pair
            infos[name] = (self.scalar("Q"), prod(shape))
        data = self.at + (-self.at % 32)
        return {name: (data + offset, count) for name, (offset, count) in infos.items()}


def replace_head(blob: bytes, values: Callable[[int], list[float]]) -> bytes:
    """The file with another output head."""
    offset, count = Gguf(blob).tensors()["output.weight"]
    return blob[:offset] + struct.pack(f"<{count}f", *values(count)) + blob[offset + 4 * count :]


def random_head(blob: bytes) -> bytes:
    rng = random.Random(0)
    return replace_head(blob, lambda count: [rng.gauss(0, 0.05) for _ in range(count)])


def zero_head(blob: bytes) -> bytes:
    return replace_head(blob, lambda count: [0.0] * count)


def truncated(blob: bytes) -> bytes:
    return blob[: len(blob) // 2]


# ---- all of them ---------------------------------------------------------------------------------------------------

GGUF: dict[str, Callable[[bytes], bytes]] = {
    "random-head.gguf": random_head,
    "zero-head.gguf": zero_head,
    "truncated.gguf": truncated,
}
SAFETENSORS: dict[str, Callable[[Tensors], Tensors]] = {
    "no-d2t": without("d2t"),
    "no-lm-head": without("lm_head.weight"),
    "layers0": layer_prefix("layers.0."),
    "unknown-prefix": layer_prefix("decoder."),
    "wrong-fc": wrong_fc,
    "absolute-d2t": absolute_d2t,
}
NAMES = [*GGUF, *SAFETENSORS, "truncated"]


def make(name: str, out: Path) -> Path:
    """Make one broken draft under `out`: a .gguf file, or a folder with config.json and model.safetensors."""
    if name not in NAMES:
        raise ValueError(f"there is no broken draft {name!r}; known: {', '.join(NAMES)}")
    path = out / name
    if name in GGUF:
        out.mkdir(parents=True, exist_ok=True)
        path.write_bytes(GGUF[name]((HERE / "draft.gguf").read_bytes()))
        return path
    healthy = HERE / "draft"
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_bytes((healthy / "config.json").read_bytes())
    if name == "truncated":
        (path / "model.safetensors").write_bytes(truncated((healthy / "model.safetensors").read_bytes()))
    else:
        write_safetensors(
            path / "model.safetensors", SAFETENSORS[name](read_safetensors(healthy / "model.safetensors"))
        )
    return path


def main(argv: list[str]) -> int:
    if not argv or argv[0].startswith("-"):
        print(f"{__doc__}\nNames: {', '.join(NAMES)}")
        return 0 if argv[:1] in (["-h"], ["--help"]) else 2
    unknown = [name for name in argv[1:] if name not in NAMES]
    if unknown:
        print(f"there is no broken draft {', '.join(unknown)}; known: {', '.join(NAMES)}", file=sys.stderr)
        return 2
    for name in argv[1:] or NAMES:
        print(make(name, Path(argv[0])))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
