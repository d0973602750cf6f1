"""Headers of safetensors files, read with suspicion.

This file stands alone (standard library, Python 3.8 and later): hooks and host programs carry it to hosts that have
nothing else. A safetensors file is 8 bytes of header length, a JSON header of that length, and the tensors' bytes
without gaps. Sources: github.com/huggingface/safetensors, README "Format" and `Metadata::validate` in src/tensor.rs.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from deploy.host.usual import BITS, Tensor, usual

__all__ = ["BITS", "Header", "HeaderError", "Tensor", "load", "look", "opened", "read"]

LIMIT = 100_000_000  # bytes of header, as in safetensors itself
STRAY = 4_000_000  # strings, lists and objects beside those of the tensors; their memory would have no other bound
TOLD = 20  # faults of one header that are told


class HeaderError(ValueError):
    """A file that is not what its header says, or has no header at all; `at` is the byte of the file where it shows."""

    def __init__(self, path: str | os.PathLike[str], what: str, at: int = 0) -> None:
        super().__init__(f"{os.fspath(path)}: {what}")
        self.path = os.fspath(path)
        self.what = what
        self.at = at


@dataclass(frozen=True)
class Header:
    """What a file says of itself: tensors in the order of their bytes, and where their bytes begin; size in bytes."""

    tensors: dict[str, Tensor]
    metadata: dict[str, str]
    data_start: int
    size: int


def read(path: str | os.PathLike[str]) -> Header:
    """Read a file's header and nothing else. Raises HeaderError for whatever is wrong with it, OSError as it comes."""
    header, faults = look(path)
    if faults:
        raise faults[0]
    return header


def look(path: str | os.PathLike[str]) -> tuple[Header, list[HeaderError]]:
    """The header as far as it can be read, and what is wrong with it, at most TOLD faults.

    So a shard that is cut off still says which tensors were in it. Raises HeaderError where there is no header.
    """
    with opened(path) as file:
        size = os.fstat(file).st_size
        text = _text(path, file, size)
    found = usual(text, size - 8 - len(text))
    if found:
        return Header(*found, 8 + len(text), size), []
    fields = _parse(path, text)
    faults: list[HeaderError] = []
    metadata = fields.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        faults.append(HeaderError(path, "its __metadata__ is not an object of strings", _place(text, "__metadata__")))
        metadata = {}
    tensors: dict[str, Tensor] = {}
    for name, entry in fields.items():
        wrong = _misfit(entry)
        if not wrong:
            tensors[name] = Tensor(entry["dtype"], tuple(entry["shape"]), *entry["data_offsets"])
        elif len(faults) < TOLD:
            faults.append(HeaderError(path, f"{name[:200]!r} {wrong}", _place(text, name)))
    ordered = dict(sorted(tensors.items(), key=lambda item: item[1][2:]))
    header = Header(ordered, metadata, 8 + len(text), size)
    if not faults:  # what a spoilt entry lacks would show as a hole
        faults = [HeaderError(path, what, at) for what, at in islice(_uncovered(header), TOLD)]
    return header, faults


def load(path: str | os.PathLike[str], header: Header, name: str) -> bytes:
    """The bytes of one (small) tensor; fewer where the file ends too early."""
    tensor = header.tensors[name]
    with opened(path) as file:
        return os.pread(file, tensor.end - tensor.start, header.data_start + tensor.start)


@contextlib.contextmanager
def opened(path: str | os.PathLike[str], flags: int = os.O_RDONLY) -> Iterator[int]:
    """A descriptor of a regular file, closed at the end. HeaderError where it is another kind of file."""
    file = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)  # a pipe would wait for a writer
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise HeaderError(path, "is not a regular file")
        yield file
    finally:
        os.close(file)


def _text(path: str | os.PathLike[str], file: int, size: int) -> bytes:
    first = os.pread(file, 8, 0)
    if first == b"version ":
        raise HeaderError(path, f"is a git-lfs pointer of {size} bytes, not the file it points to")
    if len(first) < 8:
        raise HeaderError(path, f"is {size} bytes long, too short for a header length (8 bytes)")
    length = int.from_bytes(first, "little")
    if length > LIMIT:
        raise HeaderError(path, f"says its header is {length} bytes long; at most {LIMIT} are allowed")
    if length > size - 8:
        raise HeaderError(path, f"says its header is {length} bytes long, but only {size - 8} bytes follow")
    text = os.pread(file, length, 8)
    if len(text) < length:
        raise HeaderError(path, f"ended at byte {8 + len(text)} while its header of {length} bytes was read")
    return text


def _parse(path: str | os.PathLike[str], text: bytes) -> dict[str, Any]:
    """Any header's fields."""
    if not text.startswith(b"{"):
        raise HeaderError(path, f"has a header of {len(text)} bytes that is not a JSON object: {text[:20]!r}", 8)
    entries, tokens = text.count(b'"data_offsets"'), sum(map(text.count, (b'"', b"{", b"[")))
    if tokens > 13 * entries + STRAY:
        raise HeaderError(path, f"has a header of {tokens} strings, lists and objects for {entries} tensors", 8)
    at = 8
    try:
        return _fields(path, text)
    except HeaderError:
        raise
    except RecursionError:
        raise HeaderError(path, f"has a header of {len(text)} bytes, nested too deeply", at) from None
    except ValueError as error:
        if isinstance(error, json.JSONDecodeError):
            at += len(error.doc[: error.pos].encode())
        if isinstance(error, UnicodeDecodeError):
            at += error.start
        raise HeaderError(path, f"has a header of {len(text)} bytes that is not JSON: {error}", at) from None


def _fields(path: str | os.PathLike[str], text: bytes) -> dict[str, Any]:
    """By hooks that look at every name and number."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in pairs:
            if name in found:
                raise HeaderError(path, f"names {name[:100]!r} twice", _place(text, name, again=True))
            found[name] = value
        return found

    def integer(digits: str) -> int:
        if len(digits) > 20:  # no offset has more; Python takes seconds for a million of them
            at = 8 + text.find(digits.encode())
            raise HeaderError(path, f"holds a number of {len(digits)} digits: {digits[:20]}...", at)
        return int(digits)

    fields: dict[str, Any] = json.loads(text.decode("utf-8"), object_pairs_hook=unique, parse_int=integer)
    return fields


def _place(text: bytes, name: str, *, again: bool = False) -> int:
    """The byte of the file where the header has a name, the second time where it comes `again`; else its first one."""
    for spelling in (json.dumps(name, ensure_ascii=False), json.dumps(name)):
        word = spelling.encode(errors="surrogatepass")
        first = text.find(word)
        found = text.find(word, first + 1) if again and first >= 0 else first
        if found >= 0:
            return 8 + found
    return 8


def _misfit(entry: Any) -> str:
    """What is wrong with a tensor's entry; nothing where it fits."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        return f"is not an object of dtype, shape and data_offsets: {_said(entry)}"
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in BITS:
        return f"has an unknown dtype: {_said(dtype)[:40]!r}"
    if not _naturals(shape):
        return f"has a shape that is not a list of sizes: {_said(shape)}"
    if not _naturals(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        return f"has bad offsets: {_said(offsets)}"
    bits = BITS[dtype]
    for length in shape:
        bits = min(bits * length, 1 << 80)  # a product of a million sizes must not grow without end
    if bits == (offsets[1] - offsets[0]) * 8:
        return ""
    return f"has {offsets[1] - offsets[0]} bytes ({offsets}), but {dtype} {_said(shape)} wants {bits / 8:.10g}"


def _naturals(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)


def _said(value: Any) -> str:
    try:
        return str(value)[:100]
    except RecursionError:
        return "nested too deeply"


def _uncovered(header: Header) -> Iterator[tuple[str, int]]:
    """Where a byte of the data does not belong to exactly one tensor: (what, byte of the file)."""
    end, last, begin, there = 0, "the header", header.data_start, header.size - header.data_start
    for name, tensor in header.tensors.items():
        if tensor.start < end:
            yield f"{name!r} at {tensor.start} overlaps {last!r}, which ends at {end}", begin + tensor.start
        if tensor.start > end:
            yield f"there is a hole of {tensor.start - end} bytes at {end} before {name!r}", begin + end
        if tensor.end >= end:
            end, last = tensor.end, name
    if end > there:
        missing = f"{end} bytes, {there} are there, {end - there} missing"
        yield f"is truncated: its tensors need {missing}", header.size
    if end < there:
        yield f"has {there - end} bytes after its last tensor, which ends at {end}", begin + end
