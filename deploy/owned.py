"""Which processes of a host belong to runs of ours."""

from __future__ import annotations

from collections.abc import Collection

from deploy.facts.processes import Process, Processes


def owned(runs: Collection[str], living: Processes) -> list[Process]:
    """By the run's id in their environment, or as members of a session whose leader carries it.

    A session's number cannot be given to another one while its leader lives, so membership is proof, also for a
    process that wiped its environment (setproctitle does) or whose environment we may not read.
    """
    alive = [process for process in living.all if not process.zombie]
    leaders = {process.pid for process in alive if process.run in runs and process.pid == process.session}
    return [process for process in alive if process.run in runs or process.session in leaders]
