"""What happens in a run, as data: the stream of events is the record, and every view is a reader of it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

GONE_BACK = "-rollback"  # the end of a run's name on its hosts, where a failed one started it to get back to what was

Kind = Literal[
    "run_started",  # facts: id, command, profile, deployment, recipe [[step, scope, line]], hosts, plan
    "host_connected",  # host
    "decided",  # text: "nothing runs: launching" / "same digest, serving: verifying"; facts: mode replace|verify
    "step_started",  # host, step
    "said",  # host, step, text; facts: phase, done, total, unit, rate, log (any of them may be missing)
    "finding",  # host, step; facts: check, verdict, what, evidence, remedy, waived
    "step_ended",  # host, step, text (the step's one-line outcome); facts: seconds, and what it measured
    "step_skipped",  # host, step, text (why)
    "evidence",  # host, step, text; facts: files {name: text}; once it is recorded: files [name], folder
    "filed",  # host (none: of the whole run), text; facts: files {name: text}, run; recorded: files [name], folder, run
    "failed",  # host, step, text (what); facts: evidence, remedy, exit_code, error (class name)
    "noted",  # text: something the user should know; no host
    "crashed",  # text: a traceback; our bug
    "run_ended",  # text: the summary line; facts: exit_code, seconds, verdict {...}
]


@dataclass(frozen=True)
class Event:
    """One thing that happened: when (seconds since the epoch), where (host, step), in words and as facts."""

    kind: Kind
    text: str = ""
    host: str = ""
    step: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    at: float = field(default_factory=time.time)

    def to_json(self) -> dict[str, Any]:
        """As one JSON object, without what is empty."""
        return {key: value for key, value in asdict(self).items() if value not in ("", {}, None)}
