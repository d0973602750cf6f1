"""Make broken EAGLE-3 drafts of a healthy one: make_dead.py [--of DRAFT] OUT [NAME...] (all of them without a NAME).

Most load without a word and are worth nothing: the target rejects what they draft, so the server answers correctly
and slowly, at an accept length of about 1. A few do not load at all. Only the standard library is used, and the
result is the same each time.
"""

from __future__ import annotations

import argparse
import json
import random
import struct
import sys
from collections.abc import Callable
from math import prod
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # for who loads this file by its path
from draft_faults import FAULTS, Checkpoint, read_safetensors, write_safetensors  # noqa: E402

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
NAMES = [*GGUF, *FAULTS, "truncated"]


def make(name: str, out: Path, healthy: Path = HERE / "draft") -> Path:
    """Make one broken draft under `out`: a .gguf file, or a folder with config.json and model.safetensors."""
    if name not in NAMES:
        raise ValueError(f"there is no broken draft {name!r}; known: {', '.join(NAMES)}")
    path = out / name
    if name in GGUF:
        out.mkdir(parents=True, exist_ok=True)
        path.write_bytes(GGUF[name](healthy.with_suffix(".gguf").read_bytes()))
        return path
    path.mkdir(parents=True, exist_ok=True)
    config, data = healthy / "config.json", healthy / "model.safetensors"
    if name == "truncated":
        (path / config.name).write_bytes(config.read_bytes())
        (path / data.name).write_bytes(truncated(data.read_bytes()))
        return path
    broken = FAULTS[name](Checkpoint(json.loads(config.read_text()), read_safetensors(data)))
    (path / config.name).write_text(json.dumps(broken.config, indent=1))
    write_safetensors(path / data.name, broken.tensors)
    return path


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--of", type=Path, default=HERE / "draft", metavar="DRAFT", help="the healthy draft")
    given = parser.parse_args(argv)
    unknown = [name for name in given.names if name not in NAMES]
    if unknown:
        parser.error(f"there is no broken draft {', '.join(unknown)}; known: {', '.join(NAMES)}")
    all_of_it = [name for name in NAMES if name not in GGUF or given.of.with_suffix(".gguf").exists()]
    for name in given.names or all_of_it:
        print(make(name, given.out, given.of))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
