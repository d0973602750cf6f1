from __future__ import annotations

from dataclasses import asdict

from deploy import checks
from deploy.checks import Finding
from deploy.errors import CheckFailed
from deploy.plan import Node
from deploy.remote import Remote

INSISTED = {"port"}  # `free` would stop at it all the same, with the old server gone


def preflight(node: Node, remote: Remote) -> str:
    """Check what can be known before the load"""
    findings = list(checks.run(node, remote))
    waived = set(node.profile.waive)
    for finding in findings:
        if finding.verdict != "PASS":
            remote.emit("finding", finding.what, **asdict(finding), waived=finding.check in waived)
    failed = [f for f in findings if f.verdict == "FAIL" and f.check not in waived]
    waivable = sorted({f.check for f in failed} - INSISTED)
    if failed:
        raise CheckFailed(
            f"{len(failed)} check{'s' * (len(failed) > 1)} failed on {remote.host.name}; nothing was touched",
            evidence="\n".join(_line(finding) for finding in failed),
            remedy=f"mend it, or let it pass by name: waive=[{','.join(waivable)}]" if waivable else "",
        )
    return _summary(findings, waived)


def _line(finding: Finding) -> str:
    return "\n  ".join(part for part in (f"{finding.check}: {finding.what}", finding.evidence, finding.remedy) if part)


def _summary(findings: list[Finding], waived: set[str]) -> str:
    counted = {
        "passed": sum(f.verdict == "PASS" for f in findings),
        "warned": sum(f.verdict == "WARN" for f in findings),
        "waived": sum(f.verdict == "FAIL" and f.check in waived for f in findings),
        "unknown": sum(f.verdict == "UNKNOWN" for f in findings),
    }
    return ", ".join(f"{count} {word}" for word, count in counted.items() if count)
