"""Read every byte of a folder back and print its files as JSON: {"folder", "files": [{"path", "size", "sha256"}]}.

Runs on a host as `python3 -I -c SOURCE FOLDER`, standard library only, Python 3.8 and later. It lists by the rules
of `deploy/checkpoint/manifest.py`: links are followed, hidden files and kept originals are left out, paths are sorted
and use `/`. A single file is listed with what goes with it. A repair that broke off is taken back first. What goes
wrong stands in "error", and the exit status is 0: the answer is complete.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from deploy.host.folder import NoCheckpoint, companions, files
from deploy.host.journal import RepairError, recover

BLOCK = 1 << 20


def main() -> None:
    folder = Path(sys.argv[1])
    try:
        folder = folder.expanduser()
        paths = meant(folder) if folder.is_file() else list(walk(folder, ()))
        root = folder.parent if folder.is_file() else folder
        recover(str(root))
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            told = list(pool.map(lambda path: digest(path, root), paths))
    except NoCheckpoint as error:
        print(json.dumps({"folder": str(folder), "error": error.args[0]}))
        return
    except (RepairError, OSError, ValueError, RuntimeError) as error:  # RuntimeError: ~ of a user who is not there
        print(json.dumps({"folder": str(folder), "error": str(error)}))
        return
    print(json.dumps({"folder": str(folder), "files": sorted(told, key=lambda file: str(file["path"]))}))


def meant(path: Path) -> list[Path]:
    """A `.gguf` with its other parts, or a weights file with its config. NoCheckpoint where it is neither."""
    root, names = files(path)
    return [root / name for name in [*names, *(companions(path) if path.suffix == ".safetensors" else ())]]


def walk(folder: Path, above: tuple[tuple[int, int], ...]) -> Iterator[Path]:
    """Regular files under a folder, hidden ones left out."""
    here = folder.stat()
    if (here.st_dev, here.st_ino) in above:
        raise ValueError(f"{folder} is a link to a folder above it")
    for path in folder.iterdir():
        if path.name.startswith(".") or ".safetensors.orig" in path.name:
            continue
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            yield from walk(path, (*above, (here.st_dev, here.st_ino)))
        elif stat.S_ISREG(mode):
            yield path
        else:
            raise ValueError(f"{path} is a socket, a pipe or a device")


def digest(path: Path, root: Path) -> dict[str, object]:
    """One file's line of the answer; hashlib lets other threads run meanwhile."""
    sha256, size = hashlib.sha256(), 0
    with path.open("rb", buffering=0) as file:
        while True:
            block = file.read(BLOCK)
            if not block:
                break
            sha256.update(block)
            size += len(block)
    # the name as UTF-8, whatever the host's locale is
    name = os.fsencode(path.relative_to(root)).decode("utf-8", "surrogateescape")
    return {"path": name, "size": size, "sha256": sha256.hexdigest()}


if __name__ == "__main__":
    main()
