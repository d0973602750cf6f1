"""Headers of safetensors files: read them with suspicion, and write a file anew under other names.

This file stands alone (standard library, Python 3.8 and later): hooks and host programs carry it to hosts that have
nothing else. A safetensors file is 8 bytes of header length, a JSON header of that length, and the tensors' bytes
without gaps. Sources: github.com/huggingface/safetensors, README "Format" and `Metadata::validate` in src/tensor.rs.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

LIMIT = 100_000_000  # bytes of header, as in safetensors itself
STRAY = 4_000_000  # strings, lists and objects beside those of the tensors; their memory would have no other bound
TOLD = 20  # faults of one header that are told
PAGE = 4096  # data that starts at a page can be reflinked into the next file
ROOM = 64 << 10  # bytes of padding: later renames fit into the header that is there
BLOCK = 1 << 20

BITS = {
    **dict.fromkeys(["F4"], 4),
    **dict.fromkeys(["F6_E2M3", "F6_E3M2"], 6),
    **dict.fromkeys(["BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"], 8),
    **dict.fromkeys(["U16", "I16", "F16", "BF16"], 16),
    **dict.fromkeys(["U32", "I32", "F32"], 32),
    **dict.fromkeys(["U64", "I64", "F64", "C64"], 64),
}


class HeaderError(ValueError):
    """A file that is not what its header says, or has no header at all; `at` is the byte of the file where it shows."""

    def __init__(self, path: str | os.PathLike[str], what: str, at: int = 0) -> None:
        super().__init__(f"{os.fspath(path)}: {what}")
        self.path = os.fspath(path)
        self.what = what
        self.at = at


class Tensor(NamedTuple):
    """One tensor's line of the header; its bytes lie from `start` to `end`, counted from the file's `data_start`."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


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
    with _opened(path) as file:
        size = os.fstat(file).st_size
        text = _text(path, file, size)
    fields = _parse(path, text)
    faults: list[HeaderError] = []
    metadata = fields.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        faults.append(HeaderError(path, "its __metadata__ is not an object of strings", _place(text, "__metadata__")))
        metadata = {}
    tensors: dict[str, Tensor] = {}
    for name, entry in fields.items():
        try:
            tensors[name] = _tensor(entry)
        except ValueError as error:
            faults.append(HeaderError(path, f"{name[:200]!r} {error}", _place(text, name)))
            if len(faults) >= TOLD:
                break
    ordered = dict(sorted(tensors.items(), key=lambda item: item[1][2:]))
    header = Header(ordered, metadata, 8 + len(text), size)
    if not faults:  # what a spoilt entry lacks would show as a hole
        faults = [HeaderError(path, what, at) for what, at in _uncovered(header)]
    return header, faults[:TOLD]


def load(path: str | os.PathLike[str], header: Header, name: str) -> bytes:
    """The bytes of one (small) tensor; fewer where the file ends too early."""
    tensor = header.tensors[name]
    with _opened(path) as file:
        return os.pread(file, tensor.end - tensor.start, header.data_start + tensor.start)


def rewrite(source: str | os.PathLike[str], target: str | os.PathLike[str], rename: Mapping[str, str]) -> Header:
    """Write `source` anew as `target` with tensors renamed, and return its header; the bytes never pass through us.

    `target` appears complete and synced, or not at all. Raises HeaderError where two names would become one.
    """
    before = read(source)
    after = _renamed(source, before, rename)
    text = _encode(after, before.metadata)
    target = Path(target)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with _opened(source) as old, temporary.open("wb", buffering=0) as new:
            os.fchmod(new.fileno(), stat.S_IMODE(os.fstat(old).st_mode))
            new.write(len(text).to_bytes(8, "little") + text)
            _copy(old, new.fileno(), before.data_start, before.size - before.data_start)
            os.fsync(new.fileno())
        written = read(temporary)
        if (written.tensors, written.metadata) != (after, before.metadata):
            raise HeaderError(source, "changed while it was copied")
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(target.parent)
    return written


@contextlib.contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[int]:
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would wait for a writer
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
    if not text.startswith(b"{"):
        raise HeaderError(path, f"has a header of {len(text)} bytes that is not a JSON object: {text[:20]!r}", 8)
    entries, tokens = text.count(b'"data_offsets"'), sum(map(text.count, (b'"', b"{", b"[")))
    if tokens > 13 * entries + STRAY:
        raise HeaderError(path, f"has a header of {tokens} strings, lists and objects for {entries} tensors", 8)
    not_json = f"has a header of {len(text)} bytes that is not JSON"
    try:
        return _parse_fast(text) or _parse_slowly(path, text)
    except HeaderError:
        raise
    except RecursionError:
        raise HeaderError(path, f"has a header of {len(text)} bytes, nested too deeply", 8) from None
    except json.JSONDecodeError as error:
        raise HeaderError(path, f"{not_json}: {error}", 8 + len(error.doc[: error.pos].encode())) from None
    except UnicodeDecodeError as error:
        raise HeaderError(path, f"{not_json}: {error}", 8 + error.start) from None
    except ValueError as error:
        raise HeaderError(path, f"{not_json}: {error}", 8) from None


def _parse_fast(text: bytes) -> dict[str, Any]:
    """The header's fields; nothing where somebody must look closer, which takes three times as long.

    Without escapes each string has two quotes, and a name that came twice has left some over.
    """
    # Python takes seconds for an integer of a million digits, unless it refuses them (since 3.11)
    if b"\\" not in text and getattr(sys, "get_int_max_str_digits", int)():
        with contextlib.suppress(ValueError, RecursionError):
            fields: dict[str, Any] = json.loads(text.decode("utf-8"))
            metadata = fields.get("__metadata__")
            strings = 1 + 2 * len(metadata) if isinstance(metadata, dict) else 0
            if text.count(b'"') == 2 * strings + 10 * (len(fields) - bool(strings)):
                return fields
    return {}


def _parse_slowly(path: str | os.PathLike[str], text: bytes) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in pairs:
            if name in found:
                raise HeaderError(path, f"names {name[:100]!r} twice", _place(text, name, again=True))
            found[name] = value
        return found

    def integer(digits: str) -> int:
        if len(digits) > 20:  # no offset has more
            at = 8 + max(text.find(digits.encode()), 0)
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


def _tensor(entry: Any) -> Tensor:
    try:
        dtype, shape, (start, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        needed = BITS[dtype]
        fits = len(entry) == 3 and type(shape) is list and type(start) is type(end) is int and 0 <= start <= end
        for length in shape:
            fits = fits and type(length) is int and length >= 0
            needed = min(needed * length, 1 << 80)  # a product of a million sizes must not grow without end
    except (TypeError, ValueError, KeyError):
        fits = False
    if not fits or needed != (end - start) * 8:
        raise ValueError(_misfit(entry))
    return Tensor(dtype, tuple(shape), start, end)


def _misfit(entry: Any) -> str:
    """What is wrong with a tensor's entry."""
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
        bits = min(bits * length, 1 << 80)
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


def _renamed(source: str | os.PathLike[str], header: Header, rename: Mapping[str, str]) -> dict[str, Tensor]:
    unknown = [name for name in rename if name not in header.tensors]
    if unknown:
        raise HeaderError(source, f"has no tensor {unknown[0]!r} to rename")
    came_from: dict[str, str] = {"__metadata__": "the header's own field"}
    for name in header.tensors:
        new = rename.get(name, name)
        if new in came_from:
            raise HeaderError(source, f"both {came_from[new]!r} and {name!r} would be named {new!r}")
        came_from[new] = name
    return {rename.get(name, name): tensor for name, tensor in header.tensors.items()}


def _encode(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    fields: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    for name, tensor in tensors.items():
        offsets = [tensor.start, tensor.end]
        fields[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": offsets}
    text = json.dumps(fields, separators=(",", ":")).encode()
    pages = -(-(8 + len(text) + ROOM) // PAGE)
    return text.ljust(pages * PAGE - 8)


def _copy(source: int, target: int, start: int, count: int) -> None:
    """Copy bytes in the kernel: as a reflink where the file system can; by hand where neither call works."""
    ways: list[Callable[[int, int], int]] = [
        lambda at, size: os.copy_file_range(source, target, size, at),
        lambda at, size: os.sendfile(target, source, at, size),
        lambda at, size: os.write(target, os.pread(source, min(size, BLOCK), at)),
    ]
    end = start + count
    for way in ways:
        # File systems differ in how they refuse: EXDEV, EINVAL, ENOSYS, EOPNOTSUPP, 0 bytes. A Python built against
        # an old glibc has no copy_file_range. The last way says what is wrong.
        refusals = () if way is ways[-1] else (OSError, AttributeError)
        with contextlib.suppress(*refusals):
            while start < end and (copied := way(start, min(end - start, 1 << 30))):
                start += copied
    if start < end:
        raise OSError(f"the data ended {end - start} bytes early")


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
