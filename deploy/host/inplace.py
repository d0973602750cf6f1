"""Change a checkpoint's files where they lie, all or none of them, and take the change back. A part of programs that
run on hosts.

The bytes before the data are changed in the room that is there; else room is made in front of the data by fallocate's
INSERT_RANGE, which moves no data (ext4 and XFS); and where the file system has none, in a new file that takes the place
of the old one. All three leave the same bytes. Behind the journal of `journal.py`.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from deploy.host.header import Header, Tensor, opened
from deploy.host.journal import (
    BEGUN,
    DONE,
    INSERT,
    MARK,
    RepairError,
    as_text,
    journal,
    mark,
    ranged,
    same,
    sha,
    take_back,
    write_text,
)
from deploy.host.rewrite import anew, duplicate, encoded, fits, put, roomy, sync_folder

MARKS = 16  # places of the data


@dataclass(frozen=True)
class Work:
    """What is to be changed in one file: names, and bytes of small tensors as (place in the data, old, new)."""

    name: str
    before: Header
    tensors: Mapping[str, Tensor]
    patches: list[tuple[int, bytes, bytes]]

    @cached_property
    def start(self) -> int:
        """Where the data will begin: where they do, or whole blocks later."""
        room = self.before.data_start
        enough = fits(self.tensors, self.before.metadata, room)
        return room if enough else roomy(self.tensors, self.before.metadata, room)

    @cached_property
    def head(self) -> bytes:
        """All bytes before the data, as they will be."""
        return encoded(self.tensors, self.before.metadata, self.start)


def change(folder: str, works: list[Work], texts: Mapping[str, bytes], *, orig: bool) -> dict[str, str]:
    """Change weights files and small texts of a folder, all or none of them; how each was changed.

    The caller holds the lock and has found nothing begun. With `orig` a copy of each weights file is kept beside it.
    """
    for name in [*(work.name for work in works), *texts]:
        _changeable(os.path.join(folder, name), "write a new folder instead, with --out")
    entries = [_entry(folder, work, orig=orig) for work in works]
    small = [_small(folder, name, content) for name, content in texts.items()]
    write_text(os.path.join(folder, BEGUN), json.dumps({"weights": entries, "texts": small}).encode())
    try:
        how = {work.name: _changed(folder, work, entries[number]) for number, work in enumerate(works)}
        for name, content in texts.items():
            write_text(os.path.join(folder, name), content)
            how[name] = "written"
    except BaseException as error:
        _give_up(folder, error)
        raise
    os.replace(os.path.join(folder, BEGUN), os.path.join(folder, DONE))
    sync_folder(folder)
    return how


def undo(folder: str) -> str:
    """Take back the last change, byte for byte; the caller holds the lock. RepairError where a file is another now."""
    done = os.path.join(folder, DONE)
    try:
        found = journal(done)
    except FileNotFoundError:
        raise RepairError(f"{folder}: no repair in place is noted here", "there is nothing to take back") from None
    paths = {entry["name"]: os.path.join(folder, entry["name"]) for entry in found["weights"] + found["texts"]}
    other = [entry["name"] for entry in found["weights"] if not _as_written(paths[entry["name"]], entry)]
    other += [text["name"] for text in found["texts"] if not _reads(paths[text["name"]], text["new"])]
    if other:
        kept = [entry["orig"] for entry in found["weights"] if entry["orig"]]
        remedy = f"the weights as they were: {', '.join(kept)}" if kept else "copy the draft anew from where it came"
        raise RepairError(f"{folder}: {', '.join(other)} changed since the repair; nothing was taken back", remedy)
    for path in paths.values():
        _changeable(path, "stop what uses it first")
    os.replace(done, os.path.join(folder, BEGUN))
    sync_folder(folder)
    return take_back(folder)


def _as_written(path: str, entry: dict[str, Any]) -> bool:
    """Whether a weights file is what the change left."""
    start = entry["start"] + entry["grown"]
    try:
        with opened(path, os.O_RDONLY) as file:
            return (
                os.fstat(file).st_size == entry["size"] + entry["grown"]
                and sha(os.pread(file, start, 0)) == entry["new"]
                and all(sha(os.pread(file, _length(old), start + at)) == new for at, old, new in entry["patches"])
                and same(file, entry, start)
            )
    except FileNotFoundError:
        return False


def _length(text: str) -> int:
    return len(base64.b64decode(text))


def _reads(path: str, digest: str) -> bool:
    with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
        return sha(file.read()) == digest
    return False


def _give_up(folder: str, error: BaseException) -> None:
    """Take a change back that went wrong. RepairError where that goes wrong too."""
    try:
        take_back(folder)
    except OSError as second:
        what = f"{error}; and it could not be taken back: {second}"
        raise RepairError(what, "mend that, and run any deploy ckpt command here: it takes the change back") from error


def _changeable(path: str, elsewhere: str) -> None:
    """RepairError where a file has other users, whose bytes would change too, or may not be written to."""
    status = os.lstat(path)
    if os.path.islink(path):
        raise RepairError(f"{path} is a link to {os.path.realpath(path)}, which others may use", elsewhere)
    if status.st_nlink > 1:
        raise RepairError(f"{path} has {status.st_nlink} names (hard links), and all of them would change", elsewhere)
    if not status.st_mode & 0o222:
        raise RepairError(f"{path} may not be written to", elsewhere)
    try:
        with opened(path, os.O_RDWR | os.O_NOFOLLOW) as file:
            used = _used(file)
    except PermissionError:
        raise RepairError(f"{path} may not be written to", elsewhere) from None
    if used:
        raise RepairError(f"{path} is open in another program (`fuser {path}` names it), as servers have it", elsewhere)


def _used(file: int) -> bool:
    """Whether another program has a file open, or mapped, as servers do while they load it.

    The kernel gives a write lease only to who is alone with a file (fcntl(2), F_SETLEASE). Where it knows no leases,
    and on network file systems, which refuse them for reasons of their own, nobody is seen.
    """
    try:
        fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)  # who opens it just now signals us; by default that kills
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except BlockingIOError:
        return not _on_network(file)
    except (OSError, AttributeError):  # AttributeError: not Linux
        pass
    return False


def _on_network(file: int) -> bool:
    device = os.fstat(file).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    with open("/proc/self/mountinfo", errors="surrogateescape") as mounts:
        kinds = [line.partition(" - ")[2] for line in mounts if line.split(" ")[2] == number]
    return any(kind.startswith(("nfs", "cifs", "smb")) for kind in kinds)


def _entry(folder: str, work: Work, *, orig: bool) -> dict[str, Any]:
    path, before = os.path.join(folder, work.name), work.before
    with opened(path, os.O_RDONLY) as file:
        head = os.pread(file, before.data_start, 0)
        patched = [(at, at + len(old)) for at, old, _ in work.patches]
        marks = [[at, mark(file, before.data_start + at)] for at in _places(before, patched)]
    return {
        "name": work.name,
        "size": before.size,
        "start": before.data_start,
        "grown": work.start - before.data_start,
        "head": as_text(head),
        "patches": [[at, as_text(old), sha(new)] for at, old, new in work.patches],
        "marks": marks,
        "new": sha(work.head),
        "orig": _free(folder, f"{work.name}.orig") if orig else "",
    }


def _free(folder: str, name: str) -> str:
    """A name that no older copy has."""
    names = [name, *(f"{name}.{number}" for number in range(1, 1000))]
    return next(name for name in names if not os.path.lexists(os.path.join(folder, name)))


def _places(before: Header, patched: list[tuple[int, int]]) -> list[int]:
    last = before.size - before.data_start - MARK
    places = sorted({max(last, 0) * number // (MARKS - 1) for number in range(MARKS)})
    return [at for at in places if all(at + MARK <= start or at >= end for start, end in patched)]


def _small(folder: str, name: str, content: bytes) -> dict[str, Any]:
    with open(os.path.join(folder, name), "rb") as file:
        return {"name": name, "old": as_text(file.read()), "new": sha(content)}


def _changed(folder: str, work: Work, entry: dict[str, Any]) -> str:
    path, grown, way = os.path.join(folder, work.name), entry["grown"], "header rewritten in its place"
    if entry["orig"]:
        duplicate(path, os.path.join(folder, entry["orig"]))
        sync_folder(os.path.dirname(path))
    with opened(path, os.O_RDWR) as file:
        moved = not grown or ranged(file, INSERT, grown)
        if moved:
            put(file, work.head, 0)
            for at, _, content in work.patches:
                put(file, content, work.start + at)
            os.fsync(file)
    if grown and moved:
        way = f"{grown >> 10} KiB of room made in front of the data, which stay where they are"
    if not moved:
        shared = anew(path, path, work.head, work.before, {at: content for at, _, content in work.patches})
        sync_folder(os.path.dirname(path))
        way = f"written anew, its data {'shared' if shared else 'copied'}: the file system cannot make room in front"
    with opened(path, os.O_RDONLY) as file:
        if not same(file, entry, work.start):
            raise RepairError(f"{path} is not what was written", "suspect the disk; it is as it was before")
    return way
