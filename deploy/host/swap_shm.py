"""A draft's tensors, and pieces of it in shared memory as torch maps them: a part of programs, no program.

A file of torch's begins with a header of 64 bytes, an int that counts who has it; whoever counts down to zero removes
the file, and where it is gone already, dies (ATen/MapAllocator.cpp). Here the count begins so high that the reader
never does: we remove it. Until it is handed over a file has no name, so that it dies with us. Python 3.8.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from deploy.host.folder import INDEX, NoCheckpoint, files, read_json, served
from deploy.host.header import HeaderError, opened, read
from deploy.host.swap_left import SHM, pieces_left
from deploy.host.swap_pickle import TORCH, Placed, pickled

AHEAD = 64  # bytes before the data, and what each tensor's place is a multiple of (map_alloc_alignment)
COUNT = 1 << 30
PIECE = 512 << 20  # bytes of tensors; one that is larger goes alone
AT_ONCE = 64 << 20  # bytes of one read


class Unfit(Exception):
    """A draft that cannot be handed over, in words."""


class Weight(NamedTuple):
    """A tensor where it lies: bytes `start` to `start + size` of a file."""

    path: str
    start: int
    size: int
    dtype: str
    shape: tuple[int, ...]


def weights(path: str, sent: Container[str]) -> dict[str, Weight]:
    """The tensors of these names that a server reads of a draft. Unfit where they cannot be told for sure."""
    try:
        root, names = files(Path(path))
        found: dict[str, Weight] = {}
        for shard in _shards(root, names):
            header = read(root / shard)
            for name, tensor in header.tensors.items():
                if name not in sent:
                    continue
                if name in found:
                    raise Unfit(f"{path} has {name[:200]} twice")
                place = header.data_start + tensor.start
                size = tensor.end - tensor.start
                found[name] = Weight(str(root / shard), place, size, tensor.dtype, tuple(tensor.shape))
    except NoCheckpoint as error:
        raise Unfit(error.args[0]) from None
    except (HeaderError, OSError) as error:
        raise Unfit(str(error)) from None
    strange = sorted({weight.dtype for weight in found.values()} - set(TORCH))
    if strange or not found:
        told = (
            f"has tensors of {', '.join(strange)}, which torch has no name for"
            if strange
            else "has none of the tensors"
        )
        raise Unfit(f"{path} {told}")
    return found


def _shards(root: Path, names: list[str]) -> list[str]:
    shards = [name for name in names if name.endswith(".safetensors")]
    if not shards:
        raise Unfit(f"{root} has no .safetensors, and nothing else is handed over to a running server")
    if INDEX not in names:
        return served(shards, set())
    said, wrong = read_json(root, INDEX)
    listed = said.get("weight_map")
    if wrong or not isinstance(listed, dict):
        raise Unfit(f"{root / INDEX} is no index of weights")
    meant = set(map(str, listed.values()))
    if meant - set(shards):
        raise Unfit(f"{root} lacks {min(meant - set(shards))}, which its index names")
    return served(shards, meant)


def unlike(new: Mapping[str, Weight], before: Mapping[str, Weight]) -> str:
    """In which of names, shapes and dtypes two drafts differ; nothing where one can take the other's place."""
    for name in sorted(set(new) ^ set(before)):
        return f"{name[:200]} is in {'the new' if name in new else 'the loaded'} draft alone"
    for name, weight in new.items():
        if weight[3:] != before[name][3:]:
            return f"{name[:200]} is {_called_so(weight)}, and was {_called_so(before[name])}"
    return ""


def _called_so(weight: Weight) -> str:
    return f"{weight.dtype} {list(weight.shape)}"


def room() -> int:
    """How many bytes of shared memory may be taken."""
    status = os.statvfs(SHM)
    free = status.f_bavail * status.f_frsize
    with contextlib.suppress(OSError), open("/proc/meminfo", encoding="ascii") as said:
        for line in said:
            if line.startswith("MemAvailable:"):
                return min(free, int(line.split()[1]) << 10)
    return free


def sweep(prefix: str) -> None:
    """Remove what a hand-over that was killed left in shared memory: one piece at most."""
    for path in pieces_left(prefix):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


class Piece:
    """Some tensors in a file of shared memory, which has a name while it is handed over."""

    def __init__(self, tensors: Mapping[str, Weight]) -> None:
        self.tensors = tensors
        self.placed: list[Placed] = []
        self.file: int | None = None
        self.size = 0
        for name, weight in tensors.items():
            self.placed.append(Placed(name, weight.dtype, weight.shape, self.size))
            self.size += -(-weight.size // AHEAD) * AHEAD
        self.size = max(self.size, AHEAD)

    @property
    def taken(self) -> int:
        """Bytes of tensors."""
        return sum(weight.size for weight in self.tensors.values())

    def fill(self) -> None:
        """Read the tensors into it, unless they are there. OSError, ENOSPC among others; Unfit for a cut file."""
        if self.file is not None:
            return
        self.file = os.open(SHM, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        whole = AHEAD + self.size
        os.posix_fallocate(self.file, 0, whole)  # a page that is not to be had would end us by SIGBUS
        with mmap.mmap(self.file, whole) as mapped, memoryview(mapped) as view:
            view[:4] = struct.pack("=i", COUNT)
            for placed in self.placed:
                begin = AHEAD + placed.place
                with view[begin : begin + self.tensors[placed.name].size] as target:
                    _read_into(target, self.tensors[placed.name])

    @contextlib.contextmanager
    def handed(self, name: str) -> Iterator[bytes]:
        """It under that name of /dev/shm, as a pickle of it; at the end it is gone."""
        self.fill()
        assert self.file is not None  # noqa: S101
        path = os.path.join(SHM, name)
        folder = os.open(SHM, os.O_RDONLY | os.O_CLOEXEC)
        try:
            # with a folder Python calls linkat, which alone follows the link that /proc has (bpo-37612)
            os.link(f"/proc/self/fd/{self.file}", path, src_dir_fd=folder)
            yield pickled(self.placed, f"/{name}", self.size)
        finally:
            os.close(folder)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            self.close()

    def close(self) -> None:
        if self.file is not None:
            os.close(self.file)
        self.file = None


def _read_into(target: memoryview, weight: Weight) -> None:
    with opened(weight.path) as file:
        done = 0
        while done < weight.size:
            with target[done : done + AT_ONCE] as part:
                count = os.preadv(file, [part], weight.start + done)
            if not count:
                raise Unfit(f"{weight.path} ended at byte {weight.start + done} while it was read")
            done += count


def pieces(tensors: Mapping[str, Weight], limit: int) -> list[Piece]:
    """All of them, in as few pieces of at most `limit` bytes as their order allows."""
    found: list[dict[str, Weight]] = []
    size = limit
    for name, weight in tensors.items():
        size += weight.size
        if size > limit:
            found.append({})
            size = weight.size
        found[-1][name] = weight
    return [Piece(part) for part in found]
