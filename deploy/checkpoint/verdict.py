"""The verdict of the whole: what comes of serving a checkpoint, from everything that was found in it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from deploy.errors import CheckFailed, Undecided
from deploy.findings import Finding

Verdict = Literal["corrupt", "will not start", "will serve at accept length 1.00", "could not tell", "will serve"]
ORDER: tuple[Verdict, ...] = ("corrupt", "will not start", "will serve at accept length 1.00")  # the worst first


def of(findings: Iterable[Finding]) -> Verdict:
    """The worst outcome of a FAIL; without one, whether anything could not be told."""
    found = list(findings)
    outcomes = {finding.outcome for finding in found if finding.verdict == "FAIL"}
    for verdict in ORDER:
        if verdict in outcomes:
            return verdict
    return "could not tell" if any(finding.verdict == "UNKNOWN" for finding in found) else "will serve"


def exit_code(verdict: Verdict) -> int:
    """0, 5 or 10."""
    if verdict == "will serve":
        return 0
    return Undecided.exit_code if verdict == "could not tell" else CheckFailed.exit_code
