"""How much room there is where something shall be written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from deploy import host
from deploy.facts import About, Asks, Fact, Program, Question

NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "beegfs", "gpfs", "fuse.sshfs", "9p", "glusterfs"}
)


@dataclass(frozen=True)
class Disk:
    """The filesystem that holds a path, or will: then that of the nearest folder above it that is there."""

    path: str  # as asked for
    real: str  # with ~ and links resolved on the host
    there: str  # the nearest that exists: the path itself, or a folder above it
    mount: str
    kind: str  # ext4, xfs, overlay, nfs4, ...
    source: str
    free: int  # bytes that this user may still write
    total: int  # bytes
    free_inodes: int | None  # None: it does not count them
    writable: bool  # this user may write into `there`
    exposed: list[str] = field(default_factory=list)  # folders from `there` upwards whose entries anybody may exchange

    @property
    def exists(self) -> bool:
        return self.real == self.there

    @property
    def network(self) -> bool:
        """Other hosts may see the same files."""
        return self.kind in NETWORK


def parse(answer: Iterable[Mapping[str, Any]]) -> tuple[Disk, ...]:
    """From what `deploy.host.disks` prints."""
    return tuple(Disk(**told) for told in answer)


def of(path: str, disks: Iterable[Disk]) -> Disk:
    """The one of a path that was asked about. LookupError where it was not."""
    return {disk.path: disk for disk in disks}[path]


def _questions(about: About) -> dict[str, Question]:
    return {"disks": Program("disks", (about.work, *about.paths))}


FACT: Fact[tuple[Disk, ...]] = Fact("disks", _questions, lambda answers: parse(answers["disks"].read()))


def read(remote: Asks, *paths: str) -> tuple[Disk, ...]:
    """One for each path, in order; a path may begin with ~."""
    return parse(remote.python(host.source("disks"), *paths))
