"""How fast a checkpoint's own files can be read from where they lie: readrate.py SECONDS STREAMS PATH...

STREAMS is "8,1": so many readers at a time, one after the other, each for SECONDS. Past the page cache (O_DIRECT), so
that nothing is pushed out of it and nothing comes from it; where a filesystem has no O_DIRECT, what is cached of the
parts that are read is dropped first. Prints for each PATH
{"path", "files", "bytes": all weights, "rates": {"1": bytes a second}, "direct", "missing": bools, "error": ""}.
Runs on the host: Python >= 3.8, standard library only.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import sys
import threading
import time
from typing import Any

BLOCK = 8 << 20  # bytes of one read: engines read whole shards in order
WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt", ".pth")  # the first kind that is there is what is loaded
WAIT = 20.0  # seconds beyond, for a read that hangs


def weights(path: str) -> list[str]:
    """The files that a server would load. OSError where there is nothing."""
    real = os.path.realpath(os.path.expanduser(path))
    if os.path.isfile(real):
        return [real]
    names = sorted(os.listdir(real))
    found = next((some for kind in WEIGHTS if (some := [name for name in names if name.endswith(kind)])), [])
    return [os.path.join(real, name) for name in found]


class Reader:
    """Blocks of several files, handed out to threads; each block is read once."""

    def __init__(self, files: list[str]) -> None:
        self.sizes = {path: os.stat(path).st_size for path in files}
        self.direct = True
        self.error = ""
        self._left = [(path, start) for path in files for start in range(0, self.sizes[path], BLOCK)]
        self._left.reverse()
        self._lock = threading.Lock()
        self._read = 0

    def rate(self, streams: int, seconds: float) -> float | None:
        """Bytes a second of so many readers; None where nothing is left, or nothing could be read."""
        self._read, began = 0, time.monotonic()
        until = began + seconds
        threads = [threading.Thread(target=self._pump, args=(until,), daemon=True) for _ in range(streams)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, until + WAIT - time.monotonic()))
        if any(thread.is_alive() for thread in threads):
            self.error = self.error or f"a read of {BLOCK >> 20} MiB has not ended after {WAIT:g} s"
            return None
        return self._read / max(time.monotonic() - began, 1e-6) if self._read else None

    def _pump(self, until: float) -> None:
        buffer = mmap.mmap(-1, BLOCK)  # begins at a page, as O_DIRECT wants it
        while time.monotonic() < until and not self.error:
            with self._lock:
                if not self._left:
                    return
                path, start = self._left.pop()
            try:
                count = self._block(path, start, buffer)
            except OSError as error:
                self.error = f"{path}: {error.strerror}"
                return
            with self._lock:
                self._read += count

    def _block(self, path: str, start: int, buffer: mmap.mmap) -> int:
        if self.direct:
            with contextlib.suppress(OSError):  # tmpfs of old, some FUSE
                return one(path, start, buffer, os.O_DIRECT)
        self.direct = False
        return one(path, start, buffer, 0)


def one(path: str, start: int, buffer: mmap.mmap, how: int) -> int:
    """Read one block; the number of its bytes."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | how)
    try:
        if not how:
            os.posix_fadvise(handle, start, BLOCK, os.POSIX_FADV_DONTNEED)
        return os.preadv(handle, [buffer], start)
    finally:
        os.close(handle)


def measure(path: str, seconds: float, streams: list[int]) -> dict[str, Any]:
    """What is told of one path."""
    told: dict[str, Any] = {"path": path, "files": 0, "bytes": 0, "rates": {}, "direct": True, "missing": False}
    try:
        files = weights(path)
        reader = Reader(files)
    except OSError as error:
        return {**told, "missing": isinstance(error, FileNotFoundError), "error": f"{path}: {error.strerror}"}
    if not sum(reader.sizes.values()):
        return {**told, "error": f"{path}: there are no weights ({', '.join(WEIGHTS)})"}
    rates = {}
    for number in streams:
        rate = reader.rate(number, seconds)
        if rate is not None:
            rates[str(number)] = rate
    size = sum(reader.sizes.values())
    return {**told, "files": len(files), "bytes": size, "rates": rates, "direct": reader.direct, "error": reader.error}


def main() -> None:
    seconds, streams = float(sys.argv[1]), [int(word) for word in sys.argv[2].split(",")]
    print(json.dumps([measure(path, seconds, streams) for path in sys.argv[3:]]))
    sys.stdout.flush()
    os._exit(0)  # without waiting for a read that hangs


if __name__ == "__main__":
    main()
