"""Write a safetensors file anew under other names: its data are shared or copied by the kernel, and never read by us.

A part of programs that run on hosts (standard library, Python 3.8 and later); hooks get it as `header.py`.
Data that begin at the same place within a block as before can be shared (a reflink, FICLONERANGE of linux/fs.h), so
the new header is padded until they do. Trailing spaces are part of the format (safetensors, README "Format").
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from deploy.host.header import Header, HeaderError, Tensor, opened, read

ALIGN = 64 << 10  # a multiple of the block size of every file system that shares or inserts blocks
ROOM = 64 << 10  # bytes of padding: later renames fit into the header that is there
PIECE = 1 << 20
NEW = os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
FICLONERANGE = 0x4020940D  # where the number is another one (MIPS, PowerPC) the bytes are copied


class Written(NamedTuple):
    """A file that was written: its header, and whether its data are shared with the file that they came from."""

    header: Header
    shared: bool


def rewrite(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    rename: Mapping[str, str],
    patch: Mapping[str, bytes] | None = None,
) -> Written:
    """Write `source` anew as `target`, with tensors renamed, and with other bytes for those in `patch` (old names).

    `target` appears complete and synced, or not at all. Raises HeaderError where two names would become one, or where
    the file changes meanwhile.
    """
    written = rewritten(source, target, rename, patch or {})
    sync_folder(os.path.dirname(os.path.abspath(target)))
    return written


def rewritten(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    rename: Mapping[str, str],
    patch: Mapping[str, bytes],
) -> Written:
    """The same, for who syncs the folder of `target` when all of its files are there."""
    before = read(source)
    after = renamed(source, before, rename)
    # safetensors aligns data to 8 bytes; data that are not are moved to where they are
    phase = before.data_start if before.data_start % 8 == 0 else 0
    head = encoded(after, before.metadata, roomy(after, before.metadata, phase))
    patches = {before.tensors[name].start: content for name, content in patch.items()}
    shared = anew(source, target, head, before, patches)
    return Written(read(target), shared)


def anew(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    head: bytes,
    before: Header,
    patches: Mapping[int, bytes],
) -> bool:
    """Write `head`, then the data of a file whose header was read, then patches at their places in the data; whether
    the data are shared.
    """

    def fill(old: int, new: int) -> bool:
        put(new, head, 0)
        shared = transfer(old, new, before.data_start, len(head), before.size - before.data_start)
        for at, content in patches.items():
            put(new, content, len(head) + at)
        return shared

    return _written(source, target, fill, before.size)


def duplicate(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> bool:
    """Copy a whole file; whether its blocks are shared."""
    return _written(source, target, lambda old, new: transfer(old, new, 0, 0, os.fstat(old).st_size), None)


def _written(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    fill: Callable[[int, int], bool],
    size: int | None,
) -> bool:
    """Make `target` out of `source`: complete and synced, or not there at all. Its folder is left to be synced."""
    temporary = beside(target)
    try:
        with opened(source, os.O_RDONLY) as old, opened(temporary, os.O_RDWR | NEW) as new:
            status = os.fstat(old)
            owned_like(new, status)
            shared = fill(old, new)
            os.fsync(new)
            if stamp(os.fstat(old)) != stamp(status) or size not in (None, status.st_size):
                raise HeaderError(source, "changed while it was copied")
        os.replace(temporary, target)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
    return shared


def renamed(source: str | os.PathLike[str], header: Header, rename: Mapping[str, str]) -> dict[str, Tensor]:
    """The tensors under their new names, in the order of their bytes."""
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


def roomy(tensors: Mapping[str, Tensor], metadata: Mapping[str, str], phase: int) -> int:
    """Where data may begin with room before them, whole blocks away from `phase`."""
    least = 8 + len(_entries(tensors, metadata)) + ROOM
    return least + (phase - least) % ALIGN


def fits(tensors: Mapping[str, Tensor], metadata: Mapping[str, str], start: int) -> bool:
    """Whether a header fits before data that begin at `start`."""
    return 8 + len(_entries(tensors, metadata)) <= start


def encoded(tensors: Mapping[str, Tensor], metadata: Mapping[str, str], start: int) -> bytes:
    """All bytes before data that begin at `start`, where they fit."""
    text = _entries(tensors, metadata)
    return (start - 8).to_bytes(8, "little") + text.ljust(start - 8)


def _entries(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    fields: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    for name, tensor in tensors.items():
        offsets = [tensor.start, tensor.end]
        fields[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": offsets}
    return json.dumps(fields, separators=(",", ":")).encode()


def transfer(source: int, target: int, start: int, at: int, count: int) -> bool:
    """Bring bytes from `start` of one file to `at` of another, in the kernel; whether they are shared."""
    if start % ALIGN == at % ALIGN:
        edge = min(-start % ALIGN, count)
        copy(source, target, start, at, edge)
        start, at, count = start + edge, at + edge, count - edge
        with contextlib.suppress(OSError):  # EOPNOTSUPP, EXDEV, EINVAL, ENOTTY: not on this file system
            if count:
                fcntl.ioctl(target, FICLONERANGE, struct.pack("=qQQQ", source, start, count, at))
                return True
    copy(source, target, start, at, count)
    return False


def copy(source: int, target: int, start: int, at: int, count: int) -> None:
    """Copy bytes in the kernel; by hand where neither of its calls works."""
    ways: list[Callable[[int, int], int]] = [
        lambda place, size: os.copy_file_range(source, target, size, place),
        lambda place, size: os.sendfile(target, source, place, size),
        lambda place, size: os.write(target, os.pread(source, min(size, PIECE), place)),
    ]
    os.lseek(target, at, os.SEEK_SET)
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


def beside(path: str | os.PathLike[str]) -> str:
    """The name under which a file is made before it takes its place."""
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.join(folder, f".{name}.deploy-tmp")


def put(file: int, content: bytes, at: int) -> None:
    """Write all of it at a place."""
    left = memoryview(content)
    while left:
        done = os.pwrite(file, left, at)
        left, at = left[done:], at + done


def owned_like(file: int, status: os.stat_result) -> None:
    """Give it another file's mode, and where we may its owner."""
    with contextlib.suppress(PermissionError):
        os.fchown(file, status.st_uid, status.st_gid)
    os.fchmod(file, stat.S_IMODE(status.st_mode))


def stamp(status: os.stat_result) -> list[int]:
    """What shows that a file was changed: its size, its time, and which file it is."""
    return [status.st_size, status.st_mtime_ns, status.st_ino]


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Make renames in it last."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
