"""The undo journal of a change of a checkpoint's files where they lie. A part of programs that run on hosts.

    .deploy-repair.begun    complete and synced before anything is changed: whoever finds it takes the change back
    .deploy-repair.done     the same once everything was changed and synced: to undo it is to make it begun again

Both lie beside the files, and hold what was in them before: the bytes before the data, bytes of small tensors, small
texts; and digests of what is written over them. Of the data themselves it holds digests of a few places, by which a
file is known again. `inplace.py` writes it.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from deploy.host.header import Header, opened
from deploy.host.rewrite import NEW, anew, beside, owned_like, put, sync_folder

BEGUN, DONE = ".deploy-repair.begun", ".deploy-repair.done"
ASIDE, LOCK = ".deploy-repair.aside", ".deploy-repair.lock"
INSERT, COLLAPSE = 0x20, 0x08  # FALLOC_FL_INSERT_RANGE, FALLOC_FL_COLLAPSE_RANGE of linux/falloc.h
MARK = 4096  # bytes of the data of which a digest is kept, at a few places
WEIGHTS = {
    "name": str, "size": int, "start": int, "grown": int, "head": str, "patches": list, "marks": list, "new": str,
    "orig": str,
}  # fmt: skip
TEXTS = {"name": str, "old": str, "new": str}


class RepairError(Exception):
    """What went wrong, and what to do next; the files are as they were."""

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy


def recover(folder: str) -> str:
    """Take back a change that broke off; what was done about it, nothing where none did.

    RepairError while somebody is at work on it, PermissionError where it is another user's.
    """
    if not os.path.exists(os.path.join(folder, BEGUN)):
        return ""
    with locked(os.path.join(folder, LOCK)):
        return take_back(folder) if os.path.exists(os.path.join(folder, BEGUN)) else ""


@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    """Be the only one at work; the lock ends with the process, and its file with the lock."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with contextlib.suppress(FileNotFoundError):
                if os.stat(path).st_ino == os.fstat(file).st_ino:
                    break
        except BlockingIOError:
            os.close(file)
            raise RepairError(f"another repair is at work here, and holds {path}", "wait for its end") from None
        os.close(file)
    try:
        yield
    finally:
        os.unlink(path)
        os.close(file)


def write_text(path: str, content: bytes) -> None:
    """Put a small file in the place of another, whole or not at all, with the mode and owner of the one before."""
    temporary = beside(path)
    try:
        with opened(temporary, os.O_WRONLY | NEW) as file:
            os.fchmod(file, 0o644)
            with contextlib.suppress(FileNotFoundError):
                owned_like(file, os.stat(path))
            put(file, content, 0)
            os.fsync(file)
        os.replace(temporary, path)
    finally:
        _remove(temporary)
    sync_folder(os.path.dirname(temporary))


def journal(path: str) -> dict[str, Any]:
    """A journal of ours or of root's: whoever else may write here must not tell us what to write."""
    status = os.lstat(path)
    if status.st_uid not in (os.geteuid(), 0):
        raise RepairError(f"{path} is of user {status.st_uid}, whose repair broke off", "let them run deploy ckpt fix")
    try:
        with opened(path, os.O_RDONLY | os.O_NOFOLLOW) as file:
            found: dict[str, Any] = json.loads(os.pread(file, status.st_size, 0))
        names = [name for entry in found["weights"] for name in (entry["name"], entry["orig"])]
        names += [entry["name"] for entry in found["texts"]]
        whole = all(_has(entry, WEIGHTS) for entry in found["weights"]) and all(
            _has(entry, TEXTS) for entry in found["texts"]
        )
    except (ValueError, TypeError, KeyError) as error:
        raise RepairError(f"{path} is no journal of a repair: {error}", "remove it, and check the files") from None
    if not whole:
        raise RepairError(f"{path} is of another version of deploy", "run the one that wrote it")
    if any(os.path.isabs(name) or ".." in name.split("/") for name in names):
        raise RepairError(f"{path} names files of other folders", "remove it, and check the files")
    return found


def _has(entry: dict[str, Any], fields: Mapping[str, type]) -> bool:
    return {key: type(value) for key, value in entry.items()} == fields


def take_back(folder: str) -> str:
    """Put every file back that is one of the states which the change goes through; of others nothing is touched."""
    begun = os.path.join(folder, BEGUN)
    found = journal(begun)
    foreign = [entry["name"] for entry in found["weights"] if not _restored(folder, entry)]
    for text in found["texts"]:
        path = os.path.join(folder, text["name"])
        _remove(beside(path))
        content = b""
        with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
            content = file.read()
        old = base64.b64decode(text["old"])
        if sha(content) == text["new"] and content != old:
            write_text(path, old)
        elif content != old:
            foreign.append(text["name"])
    said = f"a repair of {folder} was taken back"
    if foreign:
        os.replace(begun, os.path.join(folder, ASIDE))
        said += f", but not of {', '.join(foreign)}, which somebody changed since; what was there before is in {ASIDE}"
    else:
        os.unlink(begun)
    sync_folder(folder)
    return said


def _restored(folder: str, entry: dict[str, Any]) -> bool:
    path, start, grown = os.path.join(folder, entry["name"]), entry["start"], entry["grown"]
    _remove(beside(path))
    head = base64.b64decode(entry["head"])
    patches = {at: base64.b64decode(old) for at, old, _ in entry["patches"]}
    try:
        with opened(path, os.O_RDWR | os.O_NOFOLLOW) as file:
            size = os.fstat(file).st_size
            there = start + size - entry["size"]
            if there not in (start, start + grown) or not same(file, entry, there):
                return False
            moved = there == start or ranged(file, COLLAPSE, grown)
            if moved:
                for at, content in [(0, head), *((start + at, content) for at, content in patches.items())]:
                    _put_where_other(file, content, at)
                os.fsync(file)
    except FileNotFoundError:
        return False
    if not moved:
        anew(path, path, head, Header({}, {}, there, size), patches)
        sync_folder(os.path.dirname(path))
    _drop_copy(folder, entry, head)
    return True


def _put_where_other(file: int, content: bytes, at: int) -> None:
    """Write what differs: the disk may be full, and blocks that are shared with the copy need room to be written."""
    for place in range(0, len(content), MARK):
        piece = content[place : place + MARK]
        if os.pread(file, len(piece), at + place) != piece:
            put(file, piece, at + place)


def _drop_copy(folder: str, entry: dict[str, Any], head: bytes) -> None:
    """The copy that the change made is as the file is again."""
    if not entry["orig"]:
        return
    path = os.path.join(folder, entry["orig"])
    _remove(beside(path))
    with contextlib.suppress(FileNotFoundError), opened(path, os.O_RDONLY) as file:
        if os.fstat(file).st_size == entry["size"] and os.pread(file, len(head), 0) == head:
            os.unlink(path)


def same(file: int, entry: dict[str, Any], start: int) -> bool:
    """Whether a file whose data begin at `start` is the one that an entry is about."""
    return all(mark(file, start + at) == digest for at, digest in entry["marks"])


def mark(file: int, at: int) -> str:
    return sha(os.pread(file, MARK, at))


def ranged(file: int, mode: int, count: int) -> bool:
    """Insert bytes at the front or take them out; False where the file system cannot."""
    import ctypes  # who only looks needs none

    try:
        call = ctypes.CDLL(None, use_errno=True).fallocate
    except AttributeError:  # not Linux
        return False
    call.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return bool(call(file, mode, 0, count) == 0)


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def as_text(content: bytes) -> str:
    return base64.b64encode(content).decode()
