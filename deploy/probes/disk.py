"""How fast the model's and the draft's own files are read, and so how long a cold load reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from deploy import host
from deploy.checks import Case
from deploy.errors import DeployError
from deploy.findings import Finding
from deploy.plan import Node
from deploy.probes import Told, amount, finding, profiled, side_by_side, unknown
from deploy.text.when import span

SECONDS = 4  # of each measurement
STREAMS = (8, 1)  # readers: as engines with several threads or ranks, and one shard after the other
PATIENCE = 90.0  # seconds for all of a host


def probe(cases: Sequence[Case]) -> Told:
    """All hosts side by side; a profile names the files."""
    yield from profiled("disk", cases)
    wanted = [case for case in cases if case.node]
    for case, told in side_by_side(_measured, wanted):
        if isinstance(told, DeployError):
            yield case.host.name, unknown("disk", told)
        elif case.node:
            yield from ((case.host.name, one) for one in judged(case.node, told))


def _measured(case: Case) -> list[Mapping[str, Any]]:
    case.remote.say("reading the model's files")
    argv = (str(SECONDS), ",".join(map(str, STREAMS)), *files(case))
    model, *draft = case.remote.python(host.source("readrate"), *argv, timeout=PATIENCE)
    return [model, *(one for one in draft if not one["missing"])]


def files(case: Case) -> list[str]:
    """Where the model lies on the host, and where the draft will: it may not be there yet."""
    node = case.node
    if node is None:
        return []
    draft = [f"{case.remote.place.releases(node)}/{node.draft.digest}"] if node.draft else []
    return [node.profile.model.path, *draft]


def judged(node: Node, told: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """A load that only reads longer than it may take is worth a warning; the rest is information."""
    for one in told:
        path, rates = str(one["path"]), {int(number): float(rate) for number, rate in one["rates"].items()}
        if one["error"] or not rates:
            yield finding("disk", "UNKNOWN", f"{path} could not be measured", str(one["error"] or "nothing was read"))
            continue
        size, best = int(one["bytes"]), max(rates.values())
        seconds, count = size / best, int(one["files"])
        took = span(seconds) if seconds >= 1 else "less than a second"
        evidence = "\n".join(
            f"{number} reader{'s' * (number > 1)} at a time: {amount(rate)}/s" for number, rate in rates.items()
        )
        if not one["direct"]:
            evidence += (
                "\nthrough the page cache, of which these parts were dropped first: its filesystem has no O_DIRECT"
            )
        held = f"{count} file{'s' * (count != 1)}"
        what = f"{path}: {amount(size)} in {held}, {amount(best)}/s: a cold load reads for {took}"
        late = seconds > node.profile.ready.deadline
        if late:
            what += f", and ready.deadline is {span(node.profile.ready.deadline)}"
        remedy = "copy the model to a faster disk, or raise ready.deadline" if late else ""
        yield finding("disk", "WARN" if late else "PASS", what, evidence, remedy)
