"""Records of runs as they lie in runs/: the recorded events, and what their hosts filed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deploy.measuring.measurement import Measurement

EVENTS = Path(__file__).parent / "fixtures" / "events"


def recorded(runs: Path, name: str, events: str = "up", *, host: str = "gpu1", **filed: Any) -> Path:
    """The record of a run: `events` as they were recorded once, under the name of another run.

    `filed` is what the host filed, {"bench": a Measurement or a document, "verdict": a document}.
    """
    folder = runs / name
    folder.mkdir(parents=True)
    shutil.copy(EVENTS / f"{events}.jsonl", folder / "events.jsonl")
    for file, told in filed.items():
        own = folder / "hosts" / host
        own.mkdir(parents=True, exist_ok=True)
        (own / f"{file}.json").write_text(told.model_dump_json() if isinstance(told, Measurement) else json.dumps(told))
    return folder


def gate(name: str, wanted: str, measured: float | None, *, holds: bool | None, **more: Any) -> Mapping[str, Any]:
    """One gate of a verdict, as it is filed."""
    return {"name": name, "wanted": wanted, "measured": measured, "holds": holds, **more}
