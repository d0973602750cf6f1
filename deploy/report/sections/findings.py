"""What the checks said: what is wrong or not sure first; what is fine stands behind a click."""

from __future__ import annotations

from deploy.report.blocks import Block, Cell, Details, Section, Table, Tone
from deploy.report.document import Found, Run

TONES: dict[str, Tone] = {"FAIL": "bad", "WARN": "warn", "UNKNOWN": "warn", "PASS": "good"}
FEW = 3  # hosts that are named


def section(run: Run) -> Section | None:
    """None where no check said anything."""
    if not run.findings:
        return None
    loud = tuple(found for found in run.findings if found.verdict != "PASS")
    fine = tuple(found for found in run.findings if found.verdict == "PASS")
    blocks: list[Block] = [_table(loud)] if loud else []
    if fine:
        blocks.append(Details(f"{len(fine)} that pass", (_table(fine),)))
    return Section("Findings", tuple(blocks))


def _table(found: tuple[Found, ...]) -> Table:
    rows = tuple((_verdict(one), one.check, _hosts(one.hosts), one.what, one.evidence, one.remedy) for one in found)
    head = ("verdict", "check", "hosts", "what", "evidence", "remedy")
    kept = [place for place in range(len(head)) if any(row[place] for row in rows)]
    return Table(tuple(head[place] for place in kept), tuple(tuple(row[place] for place in kept) for row in rows))


def _verdict(found: Found) -> Cell:
    if found.waived:
        return Cell(f"{found.verdict}, waived", "warn")
    return Cell(found.verdict, TONES.get(found.verdict, "warn"))


def _hosts(hosts: tuple[str, ...]) -> str:
    return ", ".join(hosts) if len(hosts) <= FEW else f"{len(hosts)} hosts: {', '.join(hosts[:FEW])}, ..."
