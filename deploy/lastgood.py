"""What the last run was worth that had passed its gates, on this host: what a gate may ask a multiple of.

<run's folder>/good.json    its Measurement, written by `gate` when all of its gates held
"""

from __future__ import annotations

from deploy.measuring.measurement import Measurement
from deploy.remote import LONG, Remote
from deploy.state import Run

NAME = "good.json"


def beside(measured: Measurement | None, remote: Remote) -> Measurement | None:
    """The measurement with the last good one; as it is where there is none, with a note where that is other."""
    if measured is None or measured.why:
        return measured
    found = _read(remote)
    if found is None:
        return measured
    if why := _differs(found, measured):
        note = f"the last good run, {found.on.run}, is not compared with: {why}"
        return measured.model_copy(update={"notes": tuple(dict.fromkeys((*measured.notes, note)))})
    return measured.model_copy(update={"last_good": found.against(measured)})


def _read(remote: Remote) -> Measurement | None:
    """None where there is no such run, or it was measured by a version that kept nothing."""
    run = _run(remote)
    text = remote.run("cat", "--", f"{run.folder}/{NAME}", ok=(0, 1), limit=LONG) if run else ""
    try:
        return Measurement.model_validate_json(text) if text else None
    except ValueError:  # pydantic's; of a version that we cannot read
        return None


def _run(remote: Remote) -> Run | None:
    """The run that is gone back to; else what was launched last when the host was locked, where it was good: the one
    that is judged anew, or the one that it took the place of; else the last good one before that.
    """
    place = remote.place
    if place.source:
        return place.source
    return place.current if place.current and place.current.good else place.previous


def _differs(one: Measurement, other: Measurement) -> str:
    """Why two measurements are of different things; "" where only the server differs."""
    if one.on.question != other.on.question:
        return "it was asked otherwise (load, prompts, lengths, temperature, seed)"
    if set(one.on.hosts) != set(other.on.hosts):
        return f"it ran on {', '.join(one.on.hosts)}"
    ids = {one.on.model_id, other.on.model_id} - {""}
    if one.on.model != other.on.model or len(ids) > 1:
        return f"it served another model, {one.on.model}"
    return ""
