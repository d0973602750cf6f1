"""Room on the host for what is not there yet: bytes, and the inodes of as many files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from deploy.checks import Case
from deploy.checks._words import gib
from deploy.facts import disks
from deploy.facts.disks import Disk
from deploy.findings import Finding

SPARE, FILES = 64 << 20, 64  # bytes and files of a run: manifest, log, margin


@dataclass(frozen=True)
class Want:
    """What shall be written into a folder, and how much more that may become."""

    what: str
    where: Disk
    size: int  # bytes
    files: int
    later: int = 0  # bytes


def check(case: Case) -> Iterator[Finding]:
    """Only what is missing counts: a release that is there needs nothing. What is on one filesystem counts together."""
    wants = list(_wants(case))
    closed = {want.where.there: want.where for want in wants if not want.where.writable}
    for where in closed.values():
        remedy = "set `work` of the host, or draft.to"
        yield Finding("disk", "FAIL", f"{where.there} cannot be written to", f"{where.source} ({where.kind})", remedy)
    found = [finding for mount in _by_mount(wants) for finding in _room(mount)]
    yield from found
    if not closed and not found:
        free = min(want.where.free for want in wants)
        missing = sum(want.size for want in wants[1:])
        yield Finding("disk", "PASS", f"{gib(free)} free{f', {gib(missing)} are missing' if missing else ''}")


def _wants(case: Case) -> Iterator[Want]:
    looked, node = case.facts[disks.FACT], case.node
    if node is None:
        yield Want("runs", disks.of(case.facts.about.work, looked), SPARE, FILES)
        return
    place = case.remote.place
    yield Want("runs", disks.of(place.machine.root, looked), SPARE, FILES, 2 * (node.profile.log.cap or 0))
    if node.draft is not None:
        folder = place.releases(node)
        there = disks.of(f"{folder}/{node.draft.digest}", looked).exists
        manifest = node.draft.manifest
        size, files = (0, 0) if there else (manifest.size, len(manifest.files))
        yield Want("the draft", disks.of(folder, looked), size, files)


def _by_mount(wants: list[Want]) -> list[list[Want]]:
    mounts: dict[str, list[Want]] = {}
    for want in wants:
        mounts.setdefault(want.where.mount, []).append(want)
    return list(mounts.values())


def _room(wants: list[Want]) -> Iterator[Finding]:
    where, size, files = wants[0].where, sum(want.size for want in wants), sum(want.files for want in wants)
    later = sum(want.later for want in wants)
    lines = [f"{gib(want.size)} and {want.files} files for {want.what} in {want.where.path}" for want in wants]
    evidence = "\n".join([*lines, f"{where.source} on {where.mount} ({where.kind}), {gib(where.total)}"])
    remedy = "remove old releases and runs, or set `work` of the host, or draft.to"
    if where.free < size:
        yield Finding("disk", "FAIL", f"{gib(size)} are wanted there, {gib(where.free)} are free", evidence, remedy)
    elif where.free_inodes is not None and where.free_inodes < files:
        what = f"{files} inodes are wanted there, {where.free_inodes} are free"
        yield Finding("disk", "FAIL", what, evidence, "remove small files there: df -i shows where")
    elif where.free < size + later:
        what = f"{gib(where.free)} are free, and the log may grow to twice its cap, {gib(later)}"
        yield Finding("disk", "WARN", what, evidence, f"{remedy}, or lower log.cap")
