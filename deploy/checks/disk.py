"""Room on the host for what is not there yet."""

from __future__ import annotations

from collections.abc import Iterator

from deploy.checks import Case
from deploy.facts import disks
from deploy.findings import Finding

SPARE = 64 << 20  # logs, manifests, and a margin


def check(case: Case) -> Iterator[Finding]:
    """Only bytes that are missing count: a release that is there needs none."""
    if case.node is None:
        return
    node, looked = case.node, case.facts[disks.FACT]
    folder = case.remote.place.releases(node)
    release = f"{folder}/{node.draft.digest}" if node.draft else folder
    there, where = disks.of(release, looked), disks.of(folder, looked)
    size = 0 if node.draft is None or there.exists else node.draft.manifest.size
    if not where.writable:
        yield Finding(
            "disk", "FAIL", f"{where.there} cannot be written to", remedy="set `work` of the host, or draft.to"
        )
    elif where.free < size + SPARE:
        yield Finding(
            "disk",
            "FAIL",
            f"{size + SPARE} bytes are wanted in {folder}, {where.free} are free",
            f"{where.source} on {where.mount} ({where.kind})",
            "remove old releases, or set draft.to",
        )
    elif where.free_inodes == 0:
        yield Finding("disk", "FAIL", f"no inodes are free on {where.mount}", remedy="remove small files there")
    else:
        yield Finding("disk", "PASS", f"{where.free >> 20} MiB free for {size >> 20} MiB")
