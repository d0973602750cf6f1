"""Tensors that lie in a file of /dev/shm, as torch pickles them for another process: a part of programs, no program.

By hand, since importing torch takes longer than all of a hand-over. What is written is what `reduce_tensor` and
`reduce_storage` of torch/multiprocessing/reductions.py write under the sharing strategy file_system, and of it only
what SGLang's `SafeUnpickler` lets in (srt/utils/common.py). Standard library, Python 3.8.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

REDUCTIONS = "torch.multiprocessing.reductions"
TORCH = {  # dtype of safetensors: (torch's name, bytes of an element)
    "F64": ("float64", 8), "F32": ("float32", 4), "F16": ("float16", 2), "BF16": ("bfloat16", 2),
    "F8_E4M3": ("float8_e4m3fn", 1), "F8_E5M2": ("float8_e5m2", 1), "F8_E8M0": ("float8_e8m0fnu", 1),
    "I64": ("int64", 8), "I32": ("int32", 4), "I16": ("int16", 2), "I8": ("int8", 1),
    "U64": ("uint64", 8), "U32": ("uint32", 4), "U16": ("uint16", 2), "U8": ("uint8", 1), "BOOL": ("bool", 1),
}  # fmt: skip
KEEP, KEPT = b"q\x00", b"h\x00"  # BINPUT, BINGET: the one thing that is written once and used again


class Placed(NamedTuple):
    """A tensor of a file: its dtype as safetensors says it, and its place in bytes, a multiple of an element's."""

    name: str
    dtype: str
    shape: Sequence[int]
    place: int


def pickled(tensors: Iterable[Placed], file: str, size: int) -> bytes:
    """A list of (name, tensor); `file` as shm_open takes it, `size` its bytes behind torch's header.

    The empty name of a manager means the reader's own: torch starts one where it has none (libshm/core.cpp).
    """
    untyped = _made("torch.storage", "UntypedStorage")
    storage = _called("rebuild_storage_filename", untyped, _raw(b""), _raw(file.encode()), _int(size))
    return b"\x80\x04" + storage + KEEP + b"0](" + b"".join(map(_pair, tensors)) + b"e."


def _pair(tensor: Placed) -> bytes:
    dtype, each = TORCH[tensor.dtype]
    typed = _called("rebuild_typed_storage", KEPT, _made("torch", dtype))
    where = _tuple(_int(tensor.place // each), _sizes(tensor.shape), _sizes(_strides(tensor.shape)), b"\x89")
    return _tuple(_string(tensor.name), _called("rebuild_tensor", _made("torch", "Tensor"), typed, where))


def _strides(shape: Sequence[int]) -> list[int]:
    """Of a tensor without gaps, in elements."""
    found = [1]
    for length in reversed(shape):
        found.append(found[-1] * max(length, 1))
    return found[-2::-1]


def _made(module: str, name: str) -> bytes:
    return f"c{module}\n{name}\n".encode()


def _called(function: str, *words: bytes) -> bytes:
    return _made(REDUCTIONS, function) + _tuple(*words) + b"R"


def _tuple(*words: bytes) -> bytes:
    return b"(" + b"".join(words) + b"t"


def _sizes(numbers: Sequence[int]) -> bytes:
    return _tuple(*map(_int, numbers))


def _int(number: int) -> bytes:
    length = number.bit_length() // 8 + 1
    return b"\x8a" + bytes([length]) + number.to_bytes(length, "little", signed=True)


def _raw(content: bytes) -> bytes:
    return b"B" + len(content).to_bytes(4, "little") + content


def _string(words: str) -> bytes:
    content = words.encode("utf-8", "surrogatepass")
    return b"X" + len(content).to_bytes(4, "little") + content
