"""Tensors as safetensors files hold them, and as torch hands them over in shared memory; without torch.

What is handed over is a pickle of [(name, tensor)] by torch's ForkingPickler under its strategy `file_system`: a
tensor is a view of a storage, a storage a file of /dev/shm with a header of 64 bytes whose first four are a count of
references. Who attaches one takes its reference, and the last one unlinks the file (RefcountedMapAllocator).
"""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import math
import mmap
import pickle
import socket
import struct
from pathlib import Path

HEADER = 64
DTYPES = {
    "float64": ("F64", 8), "float32": ("F32", 4), "float16": ("F16", 2), "bfloat16": ("BF16", 2),
    "float8_e4m3fn": ("F8_E4M3", 1), "float8_e5m2": ("F8_E5M2", 1), "float8_e8m0fnu": ("F8_E8M0", 1),
    "int64": ("I64", 8), "int32": ("I32", 4), "int16": ("I16", 2), "int8": ("I8", 1), "bool": ("BOOL", 1),
    "uint64": ("U64", 8), "uint32": ("U32", 4), "uint16": ("U16", 2), "uint8": ("U8", 1),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Tensor:
    """As much of one as the fake keeps."""

    dtype: str  # as safetensors spells it
    shape: tuple[int, ...]
    digest: str  # of its bytes
    first: tuple[float, ...]  # the first four values of a floating one

    @staticmethod
    def of(dtype, shape, data, hashed=True):
        digest = hashlib.sha256(data).hexdigest() if hashed else ""
        return Tensor(dtype, tuple(shape), digest, values(dtype, bytes(data[:16])))


def values(dtype, data):
    """Up to four values; none of a dtype that the fake does not count with."""
    if dtype == "BF16":
        data, dtype = b"".join(b"\0\0" + data[i : i + 2] for i in range(0, min(8, len(data)), 2)), "F32"
    code = {"F32": "f", "F16": "e"}.get(dtype)
    count = min(4, len(data) // struct.calcsize(code)) if code else 0
    return struct.unpack_from(f"<{count}{code}", data) if count else ()


def read(folder, *, hashed):
    """{name: Tensor} of all safetensors files in a folder; of what is none, nothing. Hashing takes time."""
    found = {}
    for path in sorted(Path(folder).glob("*.safetensors")):
        try:
            with path.open("rb") as file:
                found.update(_file(file, hashed))
        except (OSError, ValueError, KeyError, struct.error):
            continue
    return found


def _file(file, hashed):
    (length,) = struct.unpack("<Q", file.read(8))
    for name, entry in json.loads(file.read(length)).items():
        if name != "__metadata__":
            start, end = entry["data_offsets"]
            file.seek(8 + length + start)
            data = file.read(end - start if hashed else min(16, end - start))
            yield name, Tensor.of(entry["dtype"], entry["shape"], data, hashed)


def unpickled(payload):
    """[(name, Tensor)] of what was handed over. Raises whatever a real scheduler would have died of."""
    return [(name, tensor.whole()) for name, tensor in Unpickler(io.BytesIO(payload)).load()]


class Unpickler(pickle.Unpickler):
    """Knows of torch what such a pickle needs; all else is denied, as by SGLang's SafeUnpickler."""

    def __init__(self, file):
        super().__init__(file)
        self.attached = {}  # storages by handle: torch keeps those as well

    def find_class(self, module, name):
        if module == "torch" and name in DTYPES:
            return DTYPES[name]
        known = {
            ("torch", "Size"): tuple,
            ("torch", "Tensor"): None,
            ("torch.nn.parameter", "Parameter"): None,
            ("torch", "UntypedStorage"): None,
            ("torch.storage", "UntypedStorage"): None,
            ("torch.storage", "TypedStorage"): None,
            ("collections", "OrderedDict"): dict,
            ("torch.multiprocessing.reductions", "rebuild_storage_filename"): self._storage,
            ("torch.multiprocessing.reductions", "rebuild_storage_empty"): lambda _: b"",
            ("torch.multiprocessing.reductions", "rebuild_typed_storage"): lambda storage, dtype: (storage, dtype),
            ("torch.multiprocessing.reductions", "rebuild_tensor"): _tensor,
            ("torch._utils", "_rebuild_tensor_v2"): _tensor_v2,
        }
        if (module, name) not in known:
            raise pickle.UnpicklingError(f"Blocked unsafe class loading ({module}.{name})")
        return known[module, name]

    def _storage(self, _, manager, handle, size, dtype=None):
        """Its bytes. A size is in bytes, or with a dtype in elements."""
        count = size * dtype[1] if dtype else size
        if handle in self.attached:
            _release(handle)
        else:
            self.attached[handle] = _attach(manager, handle, count)
        return (self.attached[handle], dtype) if dtype else self.attached[handle]


def _attach(manager, handle, size):
    if manager:  # torch_shm_manager of who shares it: told that it is used here too
        with socket.socket(socket.AF_UNIX) as there:
            there.connect(manager)
    try:
        with _file_of(handle).open("rb") as file:
            data = file.read(HEADER + size)[HEADER:]
    except FileNotFoundError as error:
        said = f"unable to open file <{handle.decode()}> in read-write mode: {error.strerror} ({error.errno})"
        raise RuntimeError(said) from None
    _release(handle)
    return data.ljust(size, b"\0")  # MapAllocator makes a file that is too short longer


def _release(handle):
    """Take the reference that came with the pickle; the last one takes the file."""
    path = _file_of(handle)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), HEADER) as head:
        (count,) = struct.unpack_from("<i", head)
        struct.pack_into("<i", head, 0, count - 1)
    if count == 1:
        path.unlink()


def _file_of(handle):
    return Path("/dev/shm", handle.decode().lstrip("/"))


@dataclasses.dataclass(frozen=True)
class View:
    """A tensor on its storage; offset and stride in elements."""

    data: bytes
    dtype: tuple[str, int]
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    def whole(self):
        (name, width), count = self.dtype, math.prod(self.shape)
        dense = tuple(math.prod(self.shape[i + 1 :]) for i in range(len(self.shape)))
        if self.stride != dense and count:
            raise NotImplementedError(f"the fake reads no tensor with gaps: {self.shape} by {self.stride}")
        return Tensor.of(name, self.shape, self.data[self.offset * width :][: count * width])


def _tensor(_, storage, metadata):
    offset, shape, stride, _ = metadata
    return _tensor_v2(storage, offset, shape, stride)


def _tensor_v2(storage, offset, shape, stride, *_):
    data, dtype = storage
    return View(data, dtype, offset, tuple(shape), tuple(stride))
