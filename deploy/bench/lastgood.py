"""What the last run was worth that had passed its gates, on this host: what a gate may ask a multiple of.

<run's folder>/good.json    its Measurement, written by `gate` when all of its gates held
"""

from __future__ import annotations

from deploy.deployment.state import Run
from deploy.measuring.measurement import Measurement
from deploy.remote import LONG, Remote

NAME = "good.json"


def beside(measured: Measurement | None, remote: Remote) -> Measurement | None:
    """The measurement with the last good one of the same things; as it is where there is none, with a note on one of
    others.
    """
    if measured is None or measured.why:
        return measured
    notes = []
    for run in _runs(remote):
        found = _read(run, remote)
        if found is None:
            continue
        why = _differs(found, measured)
        if not why:
            return measured.model_copy(update={"last_good": found.against(measured)})
        notes.append(f"the last good run, {found.on.run}, is not compared with: {why}")
    return measured.model_copy(update={"notes": tuple(dict.fromkeys((*measured.notes, *notes[:1])))})


def _read(run: Run, remote: Remote) -> Measurement | None:
    """None where it was measured by a version that kept nothing."""
    text = remote.run("cat", "--", f"{run.folder}/{NAME}", ok=(0, 1), limit=LONG)
    try:
        return Measurement.model_validate_json(text) if text else None
    except ValueError:  # pydantic's; of a version that we cannot read
        return None


def _runs(remote: Remote) -> list[Run]:
    """The run that is gone back to; else what was launched last when the host was locked, where it was good: the one
    that is judged anew, or the one that it took the place of; and the last good one before that.
    """
    place = remote.place
    if place.source:
        return [place.source]
    good = place.current if place.current and place.current.good else None
    return [run for run in (good, place.previous) if run]


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
