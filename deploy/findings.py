"""What somebody found who looked, as data: a verdict, what shows it, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["PASS", "WARN", "FAIL", "UNKNOWN"]
Outcome = Literal["", "corrupt", "will not start", "will serve at accept length 1.00"]


@dataclass(frozen=True)
class Finding:
    """One verdict of one check: what was found, the lines that show it, and what to do about it.

    `outcome` is what a FAIL of a checkpoint comes to when it is served all the same.
    """

    check: str  # the module's name, which is also the word for `waive=[...]`
    verdict: Verdict
    what: str
    evidence: str = ""
    remedy: str = ""
    outcome: Outcome = ""
