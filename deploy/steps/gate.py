from __future__ import annotations

import json
import time
from typing import Any

from deploy import benching
from deploy.errors import GateFailed, Undecided
from deploy.measuring import acceptance
from deploy.measuring.measurement import Measurement
from deploy.plan import Node
from deploy.remote import Remote


def gate(node: Node, remote: Remote) -> str:
    """Hold what was measured against the profile's floors"""
    measured = benching.read(remote)
    figures = measured.figures() if measured else {}
    values = {name: round(figure.value, 3) for name, figure in figures.items()}
    results = [
        {"name": name, "wanted": str(wanted), "measured": value, "holds": value is not None and wanted.holds(value)}
        for name, wanted in node.profile.gates.items()
        for value in (values.get(name),)
    ]
    holds = all(result["holds"] for result in results)
    verdict = {"run": remote.place.run, "holds": holds, "gates": results, "at": time.time()}
    verdict |= {name: values.get(name) for name in ("accept_length", "tok_s", "speedup")}
    remote.write(remote.place.folder, {"verdict.json": json.dumps(verdict, indent=1)})
    remote.say("verdict", verdict=verdict)
    if not holds:
        raise _failure(remote, measured, [result for result in results if not result["holds"]])
    return ", ".join(f"{r['name']} {r['measured']} {r['wanted']}" for r in results) or "no gates"


def _failure(remote: Remote, measured: Measurement | None, failed: list[dict[str, Any]]) -> Exception:
    evidence = "\n".join(f"{r['name']}: {r['measured']}, wanted {r['wanted']}" for r in failed)
    unknown = [result["name"] for result in failed if result["measured"] is None]
    why = measured.why or measured.no_acceptance if measured else ""
    if unknown:
        return Undecided(
            f"{remote.host.name}: {', '.join(unknown)} could not be measured",
            evidence=f"{evidence}\n{why}" if why else evidence,
            remedy="absent is not zero: does the server run the draft at all (deploy logs)? is bench.prompts empty? "
            "To go without the gate: gates={}",
        )
    found = measured.acceptance if measured else None
    if found and found.accept_length < acceptance.DEAD:
        kept = "next to no drafted token" if found.accepted else "not one drafted token"
        return GateFailed(
            f"{remote.host.name}: serving, but {kept} is accepted (accept length {found.accept_length:.2f})",
            evidence=f"{evidence}\n{found.accepted} of {found.drafted} drafted tokens kept in "
            f"{found.steps} verify steps\n{acceptance.DEFINITION}",
            remedy="the server runs the draft but gains nothing: are its tensors loaded, its head, its d2t, "
            "and is the algorithm EAGLE3? deploy ckpt check DRAFT tells. With another one: deploy restart --ckpt NEW",
        )
    return GateFailed(
        f"{remote.host.name}: serving, but below its gates",
        evidence=evidence,
        remedy="lower the gate in the profile, or restart with a better draft",
    )
