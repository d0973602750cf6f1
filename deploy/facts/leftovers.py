"""Shared memory and sockets that lie on a host, and which processes use each of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deploy import host
from deploy.facts import Asks, Fact, told_by

Key = tuple[int, int, str]  # device, inode, path


@dataclass(frozen=True)
class Item:
    """A file of /dev/shm, or a socket that is bound to a path."""

    path: str
    kind: str  # "file", "socket"
    device: int
    inode: int
    size: int  # bytes of memory that it takes
    uid: int
    age: float  # seconds since it was written or renamed
    users: tuple[int, ...]  # pids of those that map it, have it open or listen on it, as far as they may be read

    @property
    def key(self) -> Key:
        """It and no other one, until the host boots again: tmpfs gives no inode's number twice."""
        return self.device, self.inode, self.path


@dataclass(frozen=True)
class Segment:
    """A piece of System V's shared memory."""

    number: int
    size: int  # bytes
    creator: int  # pid
    attached: int  # how many processes have it, of any namespace
    uid: int
    age: float  # seconds since it was made, or its rights were changed


@dataclass(frozen=True)
class Leftovers:
    """One look. Of what processes of `unread` users use, nothing is known."""

    files: tuple[Item, ...]
    segments: tuple[Segment, ...]
    unread: tuple[int, ...]  # the user id of each process whose maps or files may not be read
    pids: frozenset[int]  # that living processes have, each in every namespace that it is in
    uid: int  # whose eyes these are
    sees_all: bool  # whether all processes of the machine can be seen: not from within a container


def parse(answer: Mapping[str, Any]) -> Leftovers:
    """From what `deploy.host.leftovers` prints."""
    names = ("shmid", "size", "cpid", "nattch", "uid", "age")
    return Leftovers(
        files=tuple(Item(**{**one, "users": tuple(one["users"])}) for one in answer["files"]),
        segments=tuple(Segment(*(one[name] for name in names)) for one in answer["segments"]),
        unread=tuple(answer["unread"]),
        pids=frozenset(answer["pids"]),
        uid=answer["uid"],
        sees_all=answer["sees_all"],
    )


FACT: Fact[Leftovers] = told_by("leftovers", parse)


def read(remote: Asks, *paths: str) -> Leftovers:
    """Look once, also at these paths."""
    return parse(remote.python(host.source("leftovers"), *paths))
