"""The few programs that the tool uses on a host."""

from __future__ import annotations

from collections.abc import Iterator

from deploy.checks import Case
from deploy.facts import tools
from deploy.findings import Finding


def check(case: Case) -> Iterator[Finding]:
    """Missing ones, by name; rsync only where something is sent over ssh."""
    sends = case.host.transport == "ssh" and (case.node is None or case.node.draft)
    found = case.facts[tools.FACT]
    wanted = [name for name in found if sends or name != "rsync"]
    missing = [name for name in wanted if not found[name]]
    if missing:
        yield Finding(
            "tools",
            "FAIL",
            f"not on the host, for a shell without a terminal: {', '.join(missing)}",
            "\n".join(f"without {name} {tools.PROGRAMS[name]}" for name in missing),
            f"install them, e.g. {missing[0]}, or put them on the PATH that its start-up files set",
        )
    else:
        yield Finding("tools", "PASS", f"{len(wanted)} programs are there")
