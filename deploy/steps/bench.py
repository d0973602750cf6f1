from __future__ import annotations

from dataclasses import asdict

from deploy.bench import benching
from deploy.measuring import quality, witnesses
from deploy.measuring.ladder import figure
from deploy.measuring.measurement import Measurement, Rung
from deploy.plan import Node
from deploy.remote import Remote


def bench(node: Node, remote: Remote) -> str:
    """Measure acceptance and speed, in rounds of the profile's prompts"""
    measured = benching.measure(node, remote)
    for finding in (*quality.findings(measured.quality), *witnesses.findings(measured)):
        remote.emit("finding", finding.what, **asdict(finding), waived=False)
    return line(measured)


def line(measured: Measurement) -> str:
    """What was measured, in one line."""
    if measured.why:
        return f"no number: {measured.why}"
    found = measured.acceptance
    kept = f"accept length not measured: {measured.no_acceptance}"
    if found:
        drafts = f"{found.accepted} drafts kept in {found.steps} steps{_each(measured)}"
        kept = f"accept length {found.accept_length:.2f} ({drafts})"
    return ", ".join([kept, *map(_speed, measured.rungs)])


def _each(measured: Measurement) -> str:
    """Of each concurrency, where there are several: most of the steps are those of the highest one."""
    told = [(rung, rung.accept_length.value) for rung in measured.rungs if rung.accept_length]
    parts = [f"{length:.2f} with {_streams(rung)}" for rung, length in told]
    return f"; {', '.join(parts)}" if len(parts) > 1 else ""


def _streams(rung: Rung) -> str:
    return "one stream" if rung.concurrency == 1 else f"{rung.concurrency} streams"


def _speed(rung: Rung) -> str:
    return f"{figure(rung.tok_s, 1)} tokens/s, {_streams(rung)}"
