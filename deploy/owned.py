"""Which processes of a host are a deployment's own."""

from __future__ import annotations

from deploy.facts import processes
from deploy.facts.processes import Process
from deploy.remote import Remote
from deploy.state import Deployment


def owned(deployment: Deployment | None, remote: Remote) -> list[Process]:
    """Living processes of the deployment's runs: by the run's id in their environment, or by the launched session.

    A session's number cannot be given to another one while a process of it lives, so the leader's start tells whose
    it is; where the leader is gone, only the environment counts.
    """
    if deployment is None:
        return []
    living = [process for process in processes.read(remote).all if not process.zombie]
    current = deployment.current
    session = int(current.pid) if current and current.alive else None
    return [p for p in living if p.run in deployment.runs or (session is not None and p.session == session)]
