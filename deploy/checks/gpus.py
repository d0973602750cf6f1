"""The GPUs of a host, against how many the node takes."""

from __future__ import annotations

from collections.abc import Iterator

from deploy.checks import Case
from deploy.facts import gpus as fact
from deploy.findings import Finding


def check(case: Case) -> Iterator[Finding]:
    """Enough of them, and all of them answer."""
    node = case.node
    if node is None or not node.gpus:
        return
    found = case.facts[fact.FACT]
    if found.all is None:
        yield Finding("gpus", "UNKNOWN", "the GPUs cannot be seen", found.error, "is the driver loaded?")
    elif len(found.all) < node.gpus:
        names = "\n".join(f"{gpu.index} {gpu.name}" for gpu in found.all)
        yield Finding(
            "gpus",
            "FAIL",
            f"{len(found.all)} GPUs, {node.gpus} are wanted",
            names or found.error,
            "set gpus, or parallel.tp",
        )
    elif found.error:
        yield Finding("gpus", "FAIL", "a GPU does not answer", found.error, "look at dmesg for Xid lines on the host")
    else:
        yield Finding("gpus", "PASS", f"{len(found.all)} x {found.all[0].name}")
