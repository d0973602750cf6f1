"""What a step does with findings: show them, and stop at a FAIL that nobody waived."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from deploy.errors import CheckFailed
from deploy.findings import Finding
from deploy.plan import Node
from deploy.remote import Remote

INSISTED = {"ports"}  # `free` would stop at it all the same, with the old server gone


def refuse(findings: Sequence[Finding], node: Node, remote: Remote, untouched: str) -> None:
    """Emit what is no PASS; CheckFailed where a FAIL is not waived. `untouched` says what that has not harmed."""
    waived = set(node.profile.waive)
    for finding in findings:
        if finding.verdict != "PASS":
            remote.emit("finding", finding.what, **asdict(finding), waived=finding.check in waived)
    failed = [f for f in findings if f.verdict == "FAIL" and f.check not in waived]
    waivable = sorted({f.check for f in failed} - INSISTED)
    if failed:
        raise CheckFailed(
            f"{len(failed)} check{'s' * (len(failed) > 1)} failed on {remote.host.name}; {untouched}",
            evidence="\n".join(_line(finding) for finding in failed),
            remedy=f"mend it, or let it pass by name: waive=[{','.join(waivable)}]" if waivable else "",
        )


def _line(finding: Finding) -> str:
    return "\n  ".join(part for part in (f"{finding.check}: {finding.what}", finding.evidence, finding.remedy) if part)
