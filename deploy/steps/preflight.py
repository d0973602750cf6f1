from __future__ import annotations

from deploy import checks, looking
from deploy.checks import Case, Finding
from deploy.plan import Node
from deploy.remote import Remote
from deploy.steps._refusing import refuse


def preflight(node: Node, remote: Remote) -> str:
    """Check what can be known before the load"""
    case = Case(node.host, looking.look(remote, looking.about(node, remote)), node, remote)
    remote.cases[node.host.name] = case
    findings = list(checks.run(case))
    refuse(findings, node, remote, "nothing was touched")
    return _summary(findings, set(node.profile.waive))


def _summary(findings: list[Finding], waived: set[str]) -> str:
    counted = {
        "passed": sum(f.verdict == "PASS" for f in findings),
        "warned": sum(f.verdict == "WARN" for f in findings),
        "waived": sum(f.verdict == "FAIL" and f.check in waived for f in findings),
        "unknown": sum(f.verdict == "UNKNOWN" for f in findings),
    }
    return ", ".join(f"{count} {word}" for word, count in counted.items() if count)
