"""`deploy status`: a row for each deployment on each host, from how it stands there now."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from deploy.deployment.state import Machine, Run
from deploy.errors import ConfigError
from deploy.facts.gpu_load import Load
from deploy.plan import Node
from deploy.project import Project
from deploy.remote import Remote
from deploy.status import drift, standing
from deploy.status.standing import Standing

Row = dict[str, Any]
# What tells when a state began.
SINCE = {"stopped": "stopped", "dead": "exit", "serving": "ready_at", "torn": "torn_at", "swapping": "torn_at"}
COLUMNS = tuple("host deployment model draft run state since pid port gpus accept tok/s drift why hold".split())


@dataclass
class Asked:
    """What hosts told, by name."""

    look: standing.Look = field(default_factory=standing.Look)
    told: dict[str, Standing] = field(default_factory=dict)

    def read(self, remote: Remote) -> Machine:
        """Ask one."""
        self.told[remote.host.name] = found = self.look.at(remote)
        return found.machine


def status(found: Mapping[str, Standing], wanted: str | None, project: Project) -> list[Row]:
    """One row for each deployment on each host, or one that says there is none; or for the `wanted` one alone."""
    known = {name for one in found.values() for name in one.machine.deployments}
    if wanted and wanted not in known:
        raise ConfigError(f"no host has a deployment {wanted}", remedy=f"known: {', '.join(sorted(known)) or 'none'}")
    drifting = drift.Drift(project)
    return [row for host, one in found.items() for row in of_host(host, one, wanted, drifting)]


def of_host(host: str, found: Standing, wanted: str | None, drifting: drift.Drift) -> list[Row]:
    """The rows of one host."""
    machine = found.machine
    own = [
        {"host": host, **_row(name, deployment.current, found, drifting)}
        for name, deployment in machine.deployments.items()
        if deployment.current and wanted in (None, name)
    ]
    if not own and not wanted:
        own = [{"host": host, "state": "nothing deployed", "gpus": [_gpu(one) for one in found.gpus or ()]}]
    for row in own:
        if machine.unread:
            row["why"] = row.get("why") or f"its lock cannot be read: {machine.unread}"
        if machine.hold:
            row["hold"] = machine.hold.to_json()
    return own


def _row(name: str, run: Run, found: Standing, drifting: drift.Drift) -> Row:
    node, doing = run.node, found.of(run)
    state, why = standing.derive(run, doing, node, found.machine.busy)
    if node is None and not why:
        why = "its manifest cannot be read"
    lives = run.alive or run.left > 0
    row: Row = {"deployment": name, "state": state, "run": run.id, "folder": run.folder, "why": why, "alive": lives}
    if node is None or run.manifest is None:
        return row
    said, verdict = run.manifest, run.verdict or {}
    if run.instead:
        row["why"] = "; ".join(
            filter(None, (why, f"tried in place of run {run.instead}: deploy rollback brings that back"))
        )
    began, draft = doing.at.get(SINCE.get(state, "")), (run.draft or "").rpartition("/")[2] or None
    unheard = run.swapped and verdict.get("accept_length") is None  # what was told last may be of the draft before
    return {
        **row,
        "pid": run.pid if lives else None,
        "port": node.port,
        "model": node.served_name,
        "draft": draft,
        "loaded": None if run.torn else draft,
        "server": run.server.rpartition("/")[2],
        "draft_from": said.get("ckpt") or (node.draft.source if node.draft else None),
        "engine": f"{node.profile.engine.name} {said.get('engine_version') or ''}".strip(),
        "since": moment(said.get("at") if began is None else began - found.ahead),
        "launched": moment(said.get("at")),
        "by": said.get("by"),
        "command": said.get("command"),
        "accept_length": verdict.get("accept_length"),
        "gates_hold": verdict.get("holds"),
        "accept_length_now": None if unheard else doing.live.accept_length,
        "tokens_per_second": doing.live.tokens_per_second,
        "gpus": list(_held(found, doing.pids, node)) if lives else [],
        "drift": drifting.of(run, node) if lives else None,
    }


def _held(found: Standing, pids: Iterable[int], node: Node) -> Iterable[Row]:
    """The GPUs whose memory its processes hold; where none can be seen to, nobody knows which ones it has."""
    own = [one for one in found.holders or () if one.pid in set(pids)]
    for gpu in (found.gpus or ()) if node.gpus else ():
        held = [one.used_mib for one in own if one.gpu_uuid == gpu.uuid]
        if held:
            yield {**_gpu(gpu), "own_mib": None if None in held else sum(mib or 0 for mib in held)}


def _gpu(gpu: Load) -> Row:
    return {
        "index": gpu.index,
        "name": gpu.name,
        "memory_used_mib": gpu.memory_used_mib,
        "memory_total_mib": gpu.memory_total_mib,
        "busy": gpu.busy,
    }


def moment(at: Any) -> str | None:
    """A time as people read it, seconds since the epoch; None for what is none, as a spoilt manifest may have it."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)) if at is not None else None
    except (TypeError, ValueError, OverflowError, OSError):
        return None


# ---- as text -------------------------------------------------------------------------------------------------------


def shown(row: Row) -> Row:
    """A row in words."""
    now = row.get("accept_length_now")
    return {
        **row,
        "accept": row.get("accept_length") if now is None else now,
        "tok/s": row.get("tokens_per_second"),
        "gpus": _memory(row.get("gpus") or []),
        "drift": drift.shown(row.get("drift")),
    }


def _memory(gpus: list[Row]) -> str:
    """`0-3: 310 of 384 GiB, 87%`: memory summed, load on average; what one of them would not say is left out."""
    if not gpus:
        return ""
    told = [ranges([gpu["index"] for gpu in gpus]) + ":"]
    used, total, busy = ([gpu[name] for gpu in gpus] for name in ("memory_used_mib", "memory_total_mib", "busy"))
    if None not in used + total:
        told.append(f"{sum(used) / 1024:.0f} of {sum(total) / 1024:.0f} GiB")
    if None not in busy:
        told.append(f"{sum(busy) / len(busy):.0f}%")
    return told[0] + " " + ", ".join(told[1:] or ["not told"])


def ranges(numbers: list[int]) -> str:
    """0-2,5."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
