"""Copy a folder on this machine the way `rsync -rLt` does: links are followed, each file is whole or not there."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from deploy.errors import RemoteFailed, TimedOut

CHUNK = 8 << 20
PARTIAL = ".deploy-partial"

Progress = Callable[[int, int], None]


def folder(source: Path, target: Path, progress: Progress, timeout: float) -> None:
    """Copy `source`'s files into the folder `target`. RemoteFailed for what cannot be copied, TimedOut in seconds."""
    limit = time.monotonic() + timeout
    try:
        pairs = [(source, target / source.name)] if source.is_file() else list(_pairs(source, target))
        total, done = sum(origin.stat().st_size for origin, _ in pairs), 0
        progress(0, total)
        for origin, goal in pairs:
            for count in _file(origin, goal):
                done += count
                progress(done, total)
                if time.monotonic() > limit:
                    raise TimedOut(f"copying {source} took longer than {timeout:g} s", status=124)
    except OSError as error:
        raise RemoteFailed(f"{source} could not be copied to {target}", status=1, evidence=str(error)) from error


def _pairs(source: Path, target: Path, above: tuple[str, ...] = ()) -> Iterator[tuple[Path, Path]]:
    """Every file below `source` with its goal; folders are made on the way. A link to a folder above is an error."""
    real = os.path.realpath(source)
    if real in above:
        raise OSError(f"{source} is a link to a folder above it")
    target.mkdir(parents=True, exist_ok=True)
    for origin in sorted(source.iterdir()):
        goal = target / origin.name
        if origin.is_dir():
            yield from _pairs(origin, goal, (*above, real))
        elif origin.is_file() or not origin.exists():  # a dangling link fails when it is opened
            yield origin, goal


def _file(origin: Path, goal: Path) -> Iterator[int]:
    """Copy one file; yields the bytes as they are done."""
    facts = origin.stat()
    if _same(facts, goal):
        yield facts.st_size
        return
    goal.parent.mkdir(parents=True, exist_ok=True)
    partial = goal.with_name(f"{PARTIAL}-{goal.name}"[:255])
    with origin.open("rb") as reader, partial.open("wb") as writer:
        while data := reader.read(CHUNK):
            writer.write(data)
            yield len(data)
    shutil.copystat(origin, partial)
    partial.replace(goal)


def _same(facts: os.stat_result, goal: Path) -> bool:
    if not goal.is_file():
        return False
    there = goal.stat()
    return (there.st_size, int(there.st_mtime)) == (facts.st_size, int(facts.st_mtime))
