"""The header of a .gguf, read with suspicion: a part of programs, no program.

Magic, version, counts; metadata; a line for each tensor; from an aligned byte on the tensors' own bytes. Numbers are
little-endian. Sources: github.com/ggml-org/ggml, docs/gguf.md; gguf.cpp `gguf_init_from_file` for what llama.cpp
refuses (a tensor that does not begin where the one before it ends); sizes of types: gguf 0.19, constants.py.
Standard library, Python 3.8.
"""

from __future__ import annotations

import math
import os
import struct
from typing import Any

# number of a type: (its name, elements of a block, bytes of a block)
TYPES = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 40), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4), 27: ("I64", 1, 8), 28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2), 34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17), 40: ("NVFP4", 64, 36), 41: ("Q1_0", 128, 18),
}  # fmt: skip
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
TENSORS, KEYS = 1_000_000, 100_000  # beyond these no header is believed
KEPT = 64  # elements of a metadata array that are kept
TEXT = 10_000  # characters of a metadata string that are kept
LONGEST = 256 << 20  # bytes of header: a vocabulary of a million words is a tenth of it
FAULTS = 20


class GgufError(ValueError):
    """A file that has no header that could be read: what, and the byte where it shows."""

    def __init__(self, what: str, at: int) -> None:
        super().__init__(what)
        self.what = what
        self.at = at


class Gguf:
    """What a file says of itself; `tensors` are {name: (dtype, shape, start, end)}, from `data_start` on.

    Shapes are in the order of safetensors, slowest first. Raises GgufError where no header can be read.
    """

    def __init__(self, path: str) -> None:
        self.metadata: dict[str, Any] = {}
        self.tensors: dict[str, tuple[str, tuple[int, ...], int, int]] = {}
        self.faults: list[tuple[str, int]] = []
        with open(path, "rb", buffering=1 << 20) as file:
            self.size = os.fstat(file.fileno()).st_size
            self._file, self._at = file, 0
            self._read()

    def _read(self) -> None:
        magic = self._take(4, "its magic")
        if magic != b"GGUF":
            raise GgufError(f"is no GGUF file: it begins with {magic!r}", 0)
        version = self._number("I", "its version")
        if version not in (2, 3):
            raise GgufError(f"is of GGUF version {version}; 2 and 3 are known", 4)
        tensors, keys = self._number("Q", "its number of tensors"), self._number("Q", "its number of keys")
        if tensors > TENSORS or keys > KEYS:
            raise GgufError(f"says that it holds {tensors} tensors and {keys} keys", 8)
        for _ in range(keys):
            at, key = self._at, self._string("a key")
            if key in self.metadata:
                self._fault(f"names {key[:100]!r} twice", at)
            self.metadata[key] = self._value(self._number("I", f"the type of {key[:100]!r}"), key)
        alignment = self.metadata.get("general.alignment", 32)
        if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
            raise GgufError(f"says that its data are aligned to {str(alignment)[:40]!r}, no power of two", 8)
        places = [self._tensor() for _ in range(tensors)]
        self.data_start = -(-self._at // alignment) * alignment
        self._lay_out([place for place in places if place], alignment)

    def _tensor(self) -> tuple[str, int, int] | None:
        """One line of the list: (name, byte of the line, the offset that it says)."""
        at, name = self._at, self._string("a tensor's name")
        count = self._number("I", f"the dimensions of {name[:100]!r}")
        if count > 4:
            raise GgufError(f"{name[:100]!r} has {count} dimensions; at most 4 are allowed", at)
        shape = tuple(self._number("Q", f"the shape of {name[:100]!r}") for _ in range(count))[::-1]
        number, offset = self._number("I", f"the type of {name[:100]!r}"), self._number("Q", "an offset")
        dtype, elements, size = TYPES.get(number, ("", 1, 0))
        if name in self.tensors:
            self._fault(f"names {name[:100]!r} twice", at)
            return None
        if not dtype:
            self._fault(f"{name[:100]!r} is of type {number}, which is not known", at)
            return None
        if shape and shape[-1] % elements:
            what = f"{name[:100]!r} has rows of {shape[-1]} elements, but {dtype} packs them by {elements}"
            self._fault(what, at)
            return None
        self.tensors[name] = (dtype, shape, offset, offset + math.prod(shape) // elements * size)
        return name, at, offset

    def _lay_out(self, places: list[tuple[str, int, int]], alignment: int) -> None:
        """Every tensor begins where the one before it ends, and the last one ends in the file."""
        expected = end = 0
        for name, at, offset in places:
            if offset != expected and not self.faults:
                self._fault(f"{name[:100]!r} has offset {offset}, but {expected} is the next one that is free", at)
            end = max(end, self.tensors[name][3])
            expected = -(-self.tensors[name][3] // alignment) * alignment
        there = self.size - self.data_start
        if end > there:
            missing = f"{end} bytes, {max(there, 0)} are there, {end - max(there, 0)} missing"
            self._fault(f"is truncated: its tensors need {missing}", self.size)

    def _value(self, kind: int, key: str) -> Any:
        if kind == STRING:
            return self._string(f"{key[:100]!r}")[:TEXT]
        if kind in SCALARS:
            return self._number(SCALARS[kind], f"{key[:100]!r}")
        if kind != ARRAY:
            raise GgufError(f"{key[:100]!r} is of type {kind}, which is not known", self._at - 4)
        inner, count = self._number("I", f"{key[:100]!r}"), self._number("Q", f"{key[:100]!r}")
        if inner == STRING:
            return self._strings(count, key)
        if inner not in SCALARS:
            raise GgufError(f"{key[:100]!r} is an array of type {inner}, which is not known", self._at - 12)
        width = struct.calcsize(f"<{SCALARS[inner]}")
        kept = min(count, KEPT)
        numbers = struct.unpack(f"<{kept}{SCALARS[inner]}", self._take(kept * width, f"{key[:100]!r}"))
        self._skip((count - kept) * width, f"{key[:100]!r}")
        return list(numbers) if kept == count else f"{count} numbers"

    def _strings(self, count: int, key: str) -> Any:
        what = f"{key[:100]!r}"
        if count > (self.size - self._at) // 8:
            raise GgufError(f"{what} is said to be of {count} strings, more than the file has room for", self._at - 8)
        kept = [self._string(what)[:TEXT] for _ in range(min(count, KEPT))]
        for _ in range(count - len(kept)):
            self._skip(self._number("Q", what), what)
        return kept if len(kept) == count else f"{count} strings"

    def _string(self, what: str) -> str:
        at, length = self._at, self._number("Q", what)
        if length > self.size - self._at:
            raise GgufError(f"{what} is said to be {length} bytes long, but {self.size - self._at} bytes follow", at)
        kept = self._take(min(length, TEXT * 4), what)
        self._skip(length - len(kept), what)
        return kept.decode("utf-8", "replace")

    def _number(self, code: str, what: str) -> Any:
        return struct.unpack("<" + code, self._take(struct.calcsize("<" + code), what))[0]

    def _take(self, length: int, what: str) -> bytes:
        found = self._file.read(length)
        if len(found) < length:
            raise GgufError(f"ends at byte {self.size}, within {what}", self.size)
        self._at += length
        if self._at > LONGEST:
            raise GgufError(f"has a header of more than {LONGEST} bytes", self._at)
        return found

    def _skip(self, length: int, what: str) -> None:
        if length > self.size - self._at:
            raise GgufError(f"ends at byte {self.size}, within {what}", self.size)
        self._at += length
        self._file.seek(self._at)

    def _fault(self, what: str, at: int) -> None:
        if len(self.faults) < FAULTS:
            self.faults.append((what, at))
