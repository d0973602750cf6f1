"""The target model, where the profile says it lies on the host."""

from __future__ import annotations

from collections.abc import Iterator

from deploy.checks import Case
from deploy.findings import Finding


def check(case: Case) -> Iterator[Finding]:
    """There, and readable by the user who will start the server."""
    if case.node is None:
        return
    path = case.node.profile.model.path
    found = case.remote.place.model
    if "error" in found:
        yield Finding(
            "model",
            "FAIL",
            f"the model {path} cannot be read: {found['error']}",
            remedy="set model.path; it is never pushed",
        )
    else:
        yield Finding("model", "PASS", f"the model is there, identity {str(found['identity'])[:16]}")
