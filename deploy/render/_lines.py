"""Events as lines to read one after another: when, host, step, words."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from deploy.events import Event
from deploy.render import _words
from deploy.render._pace import is_for_people, paced
from deploy.text.legible import one_line

EVERY = 5.0  # seconds of event time between two lines of progress of one step on one host
_INDENT = " " * 10
# Says the names of checks as they begin, several at once: which one comes first tells nothing.
_QUIET_STEP: Final = "preflight"
# From which verbosity on a kind is told; what is not named here is told from 0 on.
_TOLD_FROM: Final = {"failed": -1, "crashed": -1, "run_ended": -1, "host_connected": 1, "step_started": 1, "filed": 2}


@dataclass(frozen=True)
class Line:
    """One line, and how it is coloured where colours are shown."""

    text: str
    style: str = ""


@dataclass(frozen=True)
class Columns:
    """When the run began, and how wide hosts and steps are."""

    started: float = 0.0
    host: int = 4
    step: int = 9


class Lines:
    """Turns each event into the lines worth reading at this verbosity; remembers what it said last."""

    def __init__(self, verbosity: int) -> None:
        self.verbosity = verbosity
        self.columns = Columns()
        self.told: dict[tuple[str, str], tuple[float, str]] = {}
        self.first: dict[tuple[str, str], Event] = {}

    def of(self, event: Event) -> list[Line]:
        """The lines for one event, often none."""
        self._measure(event)
        needless = event.kind == "step_skipped" and not event.text  # all that comes after a failure
        if self.verbosity < (1 if needless else _TOLD_FROM.get(event.kind, 0)):
            return []
        if event.kind == "said":
            return self._said(event)
        if event.kind == "finding":
            return self._finding(event)
        if event.kind in ("failed", "crashed"):
            return self._failure(event)
        if event.kind == "run_ended":
            return self._ended(event)
        return [self._line(event, one_line(_text(event)), _STYLES.get(event.kind, ""))]

    def _measure(self, event: Event) -> None:
        if event.kind == "run_started":
            host = max((len(str(name)) for name in event.facts.get("hosts", ())), default=4)
            step = max((len(str(entry[0])) for entry in event.facts.get("recipe", ())), default=9)
            self.columns = Columns(event.at, min(max(host, 4), 24), min(step, 16))
        elif not self.columns.started:
            self.columns = replace(self.columns, started=event.at)

    def _said(self, event: Event) -> list[Line]:
        if not is_for_people(event) or (event.step == _QUIET_STEP and self.verbosity < 1):
            return []
        log = event.facts.get("log") if self.verbosity > 1 else None
        lines = [self._line(event, "| " + one_line(log), "dim")] if isinstance(log, str) and log.strip() else []
        key = event.host, event.step
        event, self.first[key] = paced(event, self.first.get(key))
        text = _words.doing(event)
        if text and (self._due(event, text) or (self.verbosity > 0 and event.text)):
            self.told[key] = (event.at, text)
            lines.insert(0, self._line(event, text, "dim"))
        return lines

    def _due(self, event: Event, text: str) -> bool:
        before, last = self.told.get((event.host, event.step), (float("-inf"), ""))
        return event.at - before >= EVERY and text != last

    def _finding(self, event: Event) -> list[Line]:
        good = _words.is_good(event)
        if good and self.verbosity < 1:
            return []
        first = self._line(event, _words.finding(event), "" if good else "yellow")
        return [first, *_remedy(event.facts.get("remedy"))]

    def _failure(self, event: Event) -> list[Line]:
        if event.kind == "crashed":
            block = [Line(f"{_INDENT}| {line}") for line in _words.last_lines(event.text)]
            return [self._line(event, "CRASHED: this is a bug in deploy", "red"), *block]
        evidence = [Line(f"{_INDENT}| {line}") for line in _words.evidence_of(event)]
        word, style = ("stopped", "yellow") if _words.is_stop(event) else ("FAILED", "red")
        text = one_line(event.text)
        first = self._line(event, text if text.startswith(word) else f"{word}: {text}", style)
        return [first, *evidence, *_remedy(event.facts.get("remedy"))]

    def _ended(self, event: Event) -> list[Line]:
        code = event.facts.get("exit_code", 0)
        text = one_line(event.text) + (f" (exit {code})" if code else "")
        last = Line(f"{self._elapsed(event)}  {text}", "red" if code else "green")
        if self.verbosity < 0:
            return [last]
        return [*(Line(_INDENT + line) for line in _words.verdict_lines(event.facts.get("verdict") or {})), last]

    def _line(self, event: Event, text: str, style: str = "") -> Line:
        words = [self._elapsed(event)]
        host = event.host or ",".join(map(str, event.facts.get("hosts", ()) if event.kind == "decided" else ()))
        if host:
            words.append(one_line(host, 60).ljust(self.columns.host))
        if event.step:
            words.append(one_line(event.step).ljust(self.columns.step))
        return Line("  ".join([*words, text]).rstrip(), style)

    def _elapsed(self, event: Event) -> str:
        return _words.seconds(event.at - self.columns.started).rjust(7)


_DIM: Final = ("step_started", "step_skipped", "host_connected", "filed")
_STYLES: Final = {"noted": "yellow", **dict.fromkeys(_DIM, "dim")}


def _text(event: Event) -> str:
    if event.kind == "run_started":
        return _words.headline(event.facts)
    if event.kind == "host_connected":
        return "connected"
    if event.kind == "step_started":
        return "started"
    if event.kind == "evidence":
        return _words.evidence([event])
    if event.kind == "step_skipped":
        return f"skipped: {event.text}" if event.text else "skipped"
    return event.text or "done"


def _remedy(text: Any) -> list[Line]:
    lines = _words.last_lines(str(text or ""))
    return [Line(f"{_INDENT}{'> ' if index == 0 else '  '}{line}") for index, line in enumerate(lines)]
