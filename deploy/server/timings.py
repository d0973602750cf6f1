"""How long each stage of a start took, kept on the host in the folder of the run that launched the server; what it
usually takes there.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deploy import host
from deploy.errors import DeployError
from deploy.plan import Node
from deploy.remote import Remote

FILE = "phases.json"
MOST = 5  # earlier starts that are looked at, the latest ones
PATIENCE = 10.0  # seconds for the host's answer
LONGEST = 7 * 86400.0  # seconds; nothing that starts takes longer


@dataclass(frozen=True)
class Earlier:
    """What a host knows of earlier good starts: {stage: seconds}, and whether this run's own start is kept already."""

    usual: Mapping[str, float] = field(default_factory=dict)
    kept: bool = False


def read(node: Node, remote: Remote) -> Earlier:
    """Of good runs that served the same model in the same way on this host; nothing where that cannot be read."""
    words = (remote.place.runs, remote.place.server.rpartition("/")[2], FILE, str(MOST))
    try:
        found = remote.python(host.source("timings"), *words, timeout=PATIENCE, stdin=json.dumps(_of(node)).encode())
    except DeployError:  # an estimate is no reason to fail; if the host is away, what comes next says so
        return Earlier()
    return Earlier(usual(found["good"]), bool(found["kept"]))


def usual(starts: list[Any]) -> dict[str, float]:
    """The median of each stage over some starts; what is no number of seconds is passed over."""
    took: dict[str, list[float]] = {}
    for start in starts:
        for stage, seconds in start.items() if isinstance(start, dict) else ():
            if isinstance(seconds, int | float) and 0 <= seconds <= LONGEST:
                took.setdefault(stage, []).append(float(seconds))
    return {stage: statistics.median(seconds) for stage, seconds in took.items()}


def keep(node: Node, remote: Remote, seconds: Mapping[str, float]) -> None:
    """Write it where the server was launched; it counts once a run of that server has passed its gates."""
    told = {"of": _of(node), "seconds": dict(seconds)}
    try:
        remote.write(remote.place.server, {FILE: json.dumps(told, indent=1)})
    except DeployError:  # the server is ready all the same; a full disk or a lapsed lock is told by the next step
        return


def _of(node: Node) -> dict[str, Any]:
    """What makes two starts alike; a draft, flags and versions change little beside the model's size."""
    profile = node.profile
    return {
        "engine": profile.engine.name,
        "model": profile.model.path,
        "nodes": profile.nodes,
        "rank": node.rank,
        "parallel": profile.parallel.model_dump(mode="json"),
    }
