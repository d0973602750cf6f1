"""Which processes of a host belong to a deployment of ours."""

from __future__ import annotations

from deploy.facts.processes import Process, Processes


def owned(folder: str, living: Processes) -> list[Process]:
    """Those whose environment says that they serve a run in `folder` (a run's own, or a deployment's `runs`), and the
    other members of a session whose leader says so.

    A session's number cannot be given to another one while its leader lives, so membership is proof, also for a
    process that wiped its environment (setproctitle does). Our own connection is never among them, whoever started it.
    """
    own = living.ancestors(living.asked_by)
    alive = [process for process in living.all if not process.zombie and process.pid not in own]
    marked = [process for process in alive if _within(process.run, folder)]
    pids, leaders = {p.pid for p in marked}, {p.pid for p in marked if p.pid == p.session}
    return [process for process in alive if process.pid in pids or process.session in leaders]


def _within(run: str | None, folder: str) -> bool:
    return bool(run) and (run == folder or str(run).startswith(f"{folder}/"))
