from __future__ import annotations

import json
import time
from typing import Any

from deploy.errors import GateFailed, Undecided
from deploy.measuring import acceptance
from deploy.plan import Node
from deploy.remote import Remote


def gate(node: Node, remote: Remote) -> str:
    """Hold what was measured against the profile's floors"""
    measured = _bench(remote)
    results = [
        {"name": name, "wanted": str(wanted), "measured": value, "holds": value is not None and wanted.holds(value)}
        for name, wanted in node.profile.gates.items()
        for value in (measured.get(name),)
    ]
    holds = all(result["holds"] for result in results)
    verdict = {"run": remote.place.run, "holds": holds, "gates": results, "at": time.time(), **_figures(measured)}
    remote.write(remote.place.folder, {"verdict.json": json.dumps(verdict, indent=1)})
    remote.say("verdict", verdict=verdict)
    if not holds:
        raise _failure(remote, measured, [result for result in results if not result["holds"]])
    return ", ".join(f"{r['name']} {r['measured']} {r['wanted']}" for r in results) or "no gates"


def _bench(remote: Remote) -> dict[str, Any]:
    text = remote.sh('cat -- "$1/bench.json"', remote.place.folder, ok=(0, 1))
    return json.loads(text) if text else {}


def _figures(measured: dict[str, Any]) -> dict[str, Any]:
    return {name: measured.get(name) for name in ("accept_length", "tokens_per_second")}


def _failure(remote: Remote, measured: dict[str, Any], failed: list[dict[str, Any]]) -> Exception:
    evidence = "\n".join(f"{r['name']}: {r['measured']}, wanted {r['wanted']}" for r in failed)
    unknown = [result["name"] for result in failed if result["measured"] is None]
    if unknown:
        return Undecided(
            f"{remote.host.name}: {', '.join(unknown)} could not be measured",
            evidence=f"{evidence}\n{measured['why']}" if measured.get("why") else evidence,
            remedy="absent is not zero: does the server run the draft at all (deploy logs)? is bench.prompts empty? "
            "To go without the gate: gates={}",
        )
    length = measured.get("accept_length")
    if length is not None and length < acceptance.DEAD:
        kept = "next to no drafted token" if measured["accepted"] else "not one drafted token"
        return GateFailed(
            f"{remote.host.name}: serving, but {kept} is accepted (accept length {length:.2f})",
            evidence=f"{evidence}\n{measured['accepted']} of {measured['drafted']} drafted tokens kept in "
            f"{measured['steps']} verify steps\n{acceptance.DEFINITION}",
            remedy="the server runs the draft but gains nothing: are its tensors loaded, its head, its d2t, "
            "and is the algorithm EAGLE3? deploy ckpt check DRAFT tells. With another one: deploy restart --ckpt NEW",
        )
    return GateFailed(
        f"{remote.host.name}: serving, but below its gates",
        evidence=evidence,
        remedy="lower the gate in the profile, or restart with a better draft",
    )
