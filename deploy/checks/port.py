"""The port and the GPUs that the server will take, while an earlier run of ours may still have them."""

from __future__ import annotations

from collections.abc import Iterator

from deploy import foreign
from deploy.checks import Case
from deploy.facts import processes
from deploy.facts.processes import Processes
from deploy.findings import Finding
from deploy.foreign import Holder
from deploy.owned import owned


def check(case: Case) -> Iterator[Finding]:
    """Held by nobody but us. SGLang finds a taken port only after the whole load."""
    if case.node is None:
        return
    node, remote, living = case.node, case.remote, case.facts[processes.FACT]
    ours = owned(remote.place.runs, living)
    theirs = [holder for holder in foreign.holders(node, remote, living) if holder.process not in ours]
    hidden = [holder for holder in theirs if not holder.process and holder.other_uid is not None]
    named = hidden if node.profile.evict else [*hidden, *(holder for holder in theirs if holder.process)]
    if named:
        yield Finding(
            "port", "FAIL", "somebody else's server is in the way", "\n".join(map(str, named)), _remedy(named, living)
        )
    elif theirs:
        yield Finding(
            "port", "WARN", "in the way now", "\n".join(map(str, theirs)), "it must be gone before the launch"
        )
    else:
        yield Finding("port", "PASS", f"port {node.port} is ours to take")


def _remedy(named: list[Holder], living: Processes) -> str:
    """What can work: only root ends what another user runs."""
    us = next((process.uid for process in living.all if process.pid == living.asked_by), None)
    endable = all(holder.process and us in (0, holder.process.uid) for holder in named)
    if endable:
        return "ask its owner, choose another port, or take it with evict=yes"
    return "it is another user's, whom only they or root can end: ask its owner, or choose another port"
