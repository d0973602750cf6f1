"""Why so little of a draft is accepted, with what the checkpoint doctor says of the draft that is served.

The table is `measuring/causes.py`, the judgement `measuring/diagnosing.py`; here the files are looked at.
"""

from __future__ import annotations

from deploy.checks import ckpt
from deploy.errors import DeployError, Interrupted
from deploy.measuring import diagnosing
from deploy.measuring.diagnosing import Diagnosis, Doctor
from deploy.measuring.measurement import Measurement
from deploy.plan import Node
from deploy.remote import Remote

__all__ = ["Diagnosis", "of"]


def of(measured: Measurement, node: Node, remote: Remote, expected: float | None) -> Diagnosis:
    """What a measured accept length says of the draft; `expected` is the gate's bar, or that of the last good run.

    It looks at the served draft's headers and values on the host, and at what the installed engine's loader makes of
    it (kept there from preflight), only where the acceptance is not what it should be. What cannot be looked at is said
    in its place; nothing is raised but Interrupted.
    """
    untold = diagnosing.of(measured, Doctor(), expected)
    return diagnosing.of(measured, _doctor(node, remote), expected) if untold.causes else untold


def _doctor(node: Node, remote: Remote) -> Doctor:
    if node.draft is None:
        return Doctor(why="it drafts without a checkpoint of its own")
    remote.say("looking at the draft's files")
    try:
        cases, by = ckpt.cases(node, remote, f"{remote.place.folder}/{node.draft.served}", remote)
    except Interrupted:
        raise
    except DeployError as error:
        return Doctor(why=f"the draft's files could not be looked at: {error.what}")
    return Doctor(cases, by=by)
