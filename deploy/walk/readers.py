"""Who reads what happens in a run: the view and the record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deploy.events import Event
from deploy.record import Recorder
from deploy.record.mask import masked
from deploy.render import View
from deploy.walk.course import Failure


@dataclass
class Readers:
    """Who reads the events: the view and the record, with secrets hidden from both; and what was told so far."""

    view: View
    recorder: Recorder
    hidden: list[str]
    told: list[Event] = field(default_factory=list)

    def on(self, event: Event) -> None:
        """Hand an event to both."""
        event = self.recorder.filed(masked(event, self.hidden))
        if not event.facts.get("log"):  # a server's log is in the record; here it would only fill the memory
            self.told.append(event)
        self.recorder.on(event)
        self.view.on(event)

    def masked(self, document: dict[str, Any]) -> dict[str, Any]:
        """A document as it may be shown."""
        return dict(masked(Event("noted", facts=document), self.hidden).facts)

    def facts(self, name: str) -> list[Any]:
        """What steps said under this name, in order."""
        return [event.facts[name] for event in self.told if name in event.facts]

    def finish(self, failures: list[Failure], seconds: float, summary: Mapping[str, Any]) -> int:
        """The last event, and the exit code: that of the first host that failed."""
        code = failures[0].error.exit_code if failures else 0
        if self.recorder.trouble:
            self.view.on(Event("noted", f"the record is not complete: {self.recorder.trouble}"))
        self.on(Event("run_ended", _line(failures, summary), facts={"exit_code": code, "seconds": seconds, **summary}))
        return code

    def close(self) -> None:
        """Leave the terminal and the record as they should be."""
        self.recorder.close()
        self.view.close()


def _line(failures: list[Failure], summary: Mapping[str, Any]) -> str:
    if failures:
        return "; ".join(failure.error.what for failure in failures)
    length = (summary.get("verdict") or {}).get("accept_length")
    return "done" if length is None else f"done, accept length {length:.2f}"
