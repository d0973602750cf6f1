"""Say which model a path holds, without reading its weights: {"path", "files", "size", "config", "identity"}.

Runs on a host as `python3 -I -c SOURCE PATH`, standard library only, Python 3.8 and later. PATH is a model's folder
or one file. Each file is told by name, bytes, mtime and the sha256 of its head: a safetensors header, all of a small
file (config, index), the first MiB of anything else. `identity` is the sha256 over all of these, so that a terabyte
in 200 shards costs a few hundred small reads. A model that is changed in place keeps neither its mtime nor, where
tensors were renamed, its header.

What cannot be told stands in "error" (missing, empty, unreadable) with "evidence"; the exit status is 0 then too.
"""

from __future__ import annotations

import hashlib
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HEAD = 1 << 20
LIMIT = 100_000_000  # bytes of a safetensors header


def main() -> None:
    print(json.dumps(identify(sys.argv[1])))


def identify(name: str) -> dict[str, Any]:
    """The whole answer for one path."""
    try:
        path = Path(name).expanduser()
        paths = [path] if path.is_file() else sorted(entry for entry in path.iterdir() if is_part(entry))
        if not paths:
            return {"error": "empty", "path": str(path), "evidence": "no files in it"}
        with ThreadPoolExecutor(16) as pool:
            files = list(pool.map(describe, paths))
    except (FileNotFoundError, NotADirectoryError) as error:
        return {"error": "missing", "path": name, "evidence": str(error)}
    except (OSError, RuntimeError) as error:  # RuntimeError: ~ of a user who is not there
        return {"error": "unreadable", "path": name, "evidence": str(error)}
    answer = {"path": str(path), "files": files, "size": sum(file["size"] for file in files), **config(path)}
    return {**answer, "identity": hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()}


def is_part(path: Path) -> bool:
    """Regular files that are not hidden; a link without a target is one, and says so when it is read."""
    return not path.name.startswith(".") and (path.is_file() or not path.exists())


def describe(path: Path) -> dict[str, Any]:
    """One file's line of the answer."""
    status = path.stat()
    with path.open("rb", buffering=0) as file:
        length = status.st_size
        if path.suffix == ".safetensors":
            length = 8 + int.from_bytes(file.read(8), "little")
            file.seek(0)
        elif path.suffix != ".json":
            length = HEAD
        head = read(file, length if length <= LIMIT else HEAD)  # a spoilt header is the checkpoint check's to tell
    sha256 = hashlib.sha256(head).hexdigest()
    return {
        "name": path.name,
        "size": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "head": len(head),
        "sha256": sha256,
    }


def read(file: Any, length: int) -> bytes:
    """At most `length` bytes from where the file stands: one read may bring fewer than are there."""
    parts = []
    while length > 0:
        part = file.read(length)
        if not part:
            break
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def config(path: Path) -> dict[str, Any]:
    """The model's config.json, parsed; None for a single file, or with the reason in "config_error"."""
    if path.is_file():
        return {"config": None}
    try:
        return {"config": json.loads((path / "config.json").read_text(encoding="utf-8"))}
    except FileNotFoundError:
        return {"config": None, "config_error": "there is no config.json"}
    except (OSError, ValueError, RecursionError) as error:
        return {"config": None, "config_error": str(error)}


if __name__ == "__main__":
    main()
