"""The few programs that the tool uses on a host, and a shell that says nothing of its own."""

from __future__ import annotations

from collections.abc import Iterator

from deploy.checks import Case
from deploy.findings import Finding

PROGRAMS = ("setsid", "nohup", "timeout", "readlink", "find", "tail", "head", "mv", "ln", "cp")
LOOK = 'for name; do command -v "$name" >/dev/null || echo "$name"; done'


def check(case: Case) -> Iterator[Finding]:
    """Missing ones, by name; rsync only where something is sent over ssh."""
    sends = case.host.transport == "ssh" and (case.node is None or case.node.draft)
    wanted = [*PROGRAMS, *(["rsync"] if sends else [])]
    missing = case.remote.sh(LOOK, *wanted).split()
    if missing:
        yield Finding(
            "tools", "FAIL", f"not on the host: {', '.join(missing)}", remedy=f"install them, e.g. {missing[0]}"
        )
    else:
        yield Finding("tools", "PASS", f"{len(wanted)} programs are there")
