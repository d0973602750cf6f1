"""How fast a draft comes from a file into the shared memory that a server reads it from, without a server.

    python -m benchmarks.handover [MEGABYTES [ROUNDS]]

The pieces are the hand-over's own (deploy/host/swap_shm.py), from the page cache and from the disk (its pages
dropped before). The peer reads the same bytes with `preadv` into one buffer that it uses again, and keeps nothing; what
`push` does besides is read all of it back for its SHA-256. Alternating, medians, MB of 1e6 bytes a second.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from deploy.host.header import read
from deploy.host.swap_shm import AT_ONCE, PIECE, pieces, weights
from tests import checkpoints

SIDE = 4096  # of each matrix, bf16


def draft(path: Path, megabytes: int) -> Path:
    """A weights file of about that size, its bytes random and on the disk."""
    count = max(1, round(megabytes * 1e6 / (2 * SIDE * SIDE)))
    checkpoints.weights(path, {f"layers.0.{n}.weight": ("BF16", [SIDE, SIDE]) for n in range(count)})
    block = os.urandom(1 << 20)
    with path.open("r+b") as file:
        file.seek(4096)  # past the header
        left = path.stat().st_size - 4096
        while left > 0:
            left -= file.write(block[: min(left, len(block))])
        file.flush()
        os.fsync(file.fileno())
    return path


def dropped(path: Path) -> None:
    """Its pages are not in memory any more."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def filled(path: Path) -> None:
    """All pieces, one after another, as where there is room for one alone."""
    for piece in pieces(weights(str(path), read(path).tensors), PIECE):
        piece.fill()
        piece.close()


def only_read(path: Path) -> None:
    buffer = bytearray(AT_ONCE)
    with path.open("rb") as file:
        at = 0
        while count := os.preadv(file.fileno(), [buffer], at):
            at += count


def hashed(path: Path) -> None:
    with path.open("rb") as file:
        hashlib.file_digest(file, "sha256")


WAYS: dict[str, tuple[Callable[[Path], None], bool]] = {  # what is done, whether the file comes from the disk
    "read alone": (only_read, False),
    "into shared memory": (filled, False),
    "sha256, as push reads it back": (hashed, False),
    "read alone, from the disk": (only_read, True),
    "into shared memory, from the disk": (filled, True),
}


def seconds(act: Callable[[Path], None], path: Path, cold: bool) -> float:
    dropped(path) if cold else only_read(path)
    began = time.perf_counter()
    act(path)
    return time.perf_counter() - began


def measure(folder: Path, megabytes: int, rounds: int) -> None:
    """Print what each way takes. The file lies in `folder`, and is gone at the end."""
    (folder / "config.json").write_text("{}")
    path = draft(folder / "model.safetensors", megabytes)
    size = path.stat().st_size / 1e6
    found: dict[str, list[float]] = {name: [] for name in WAYS}
    try:
        for _ in range(rounds):
            for name, (act, cold) in WAYS.items():
                found[name].append(seconds(act, path, cold))
    finally:
        path.unlink()
    print(f"a draft of {size:.0f} MB, medians of {rounds}, load average {os.getloadavg()[0]:.1f}")
    for name, several in found.items():
        peer = found["read alone, from the disk" if WAYS[name][1] else "read alone"]
        ratio = median(one / other for one, other in zip(several, peer, strict=True))
        print(f"  {name:<34} {size / median(several):7.0f} MB/s   {ratio:.2f} x reading alone", flush=True)


def main() -> None:
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    with tempfile.TemporaryDirectory(prefix="handover-") as folder:
        measure(Path(folder), megabytes, rounds)


if __name__ == "__main__":
    main()
