"""How far a server is with its start, told from its log's lines as they come."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from deploy.engines import Engine
from deploy.engines._log import Progress
from deploy.engines._phases import Standing, Startup
from deploy.plan import Node
from deploy.remote import Remote
from deploy.server import timings

SHOWN = 20  # lines of what came at once: a server may write faster than anybody reads
AGAIN = 15.0  # seconds without a line after which it is told once more where it stands
COARSE, LATE = 1.0, 1.5  # seconds: a log's clock shows whole ones, and a line is heard a moment after it was written
LONGEST = 3  # stages named in the outcome


class Clock:
    """When a line was written, in seconds; it never goes back.

    A log's own clock has whole seconds or is missing, while lines that come one by one are heard as they are written:
    so the hearing counts, unless the log's clock contradicts it. A server that is adopted has written for a while.
    While a log is read that was there before (`replay`), its own clock counts alone.
    """

    def __init__(self, heard: float, *, replay: bool = False) -> None:
        self._last, self._shift, self._base = heard, 0.0, None
        self._coarse, self._late = (0.0, 0.0) if replay else (COARSE, LATE)

    _base: float | None  # what the log's clock shows at our zero

    def at(self, written: float | None, heard: float) -> float:
        """The time of a line that was heard at `heard`, and says that it was written at `written`."""
        time = heard + self._shift
        if written is not None:
            if self._base is None or written - self._base < self._last - LATE:  # or the log's clock was set back
                self._base = written - time
            told = written - self._base
            if not told - self._coarse <= time <= told + self._late:
                time, self._shift = told, max(self._shift, told - heard)
        self._last = max(self._last, time)
        return self._last

    def still(self, seconds: float, heard: float) -> None:
        """The log was there before up to here, and until `heard` nothing was written for so long."""
        self._shift = max(self._shift, self._last + seconds - heard)
        self._coarse, self._late = COARSE, LATE


class Heard:
    """A log as far as it was heard: where its server stands. `heard` is the time of hearing, in seconds."""

    def __init__(self, engine: Engine, version: str | None, heard: float, *, replay: bool = False) -> None:
        self._engine, self._clock = engine, Clock(heard, replay=replay)
        self.startup = Startup(engine.order(version), heard)

    @property
    def standing(self) -> Standing | None:
        """Where it stands; None for a server whose phases nobody knows."""
        return self.startup.standing

    def line(self, line: str, heard: float) -> Progress | None:
        """Take in a line of the log; the last of what it tells."""
        told = None
        if not any(word in line for word in self._engine.WORDS):  # a tenth of what all the marks would cost
            return None
        for told in self._engine.marks(line):
            self.startup.hear(told, self._clock.at(told.at, heard))
        return told

    def still(self, seconds: float, heard: float) -> None:
        """Until `heard`, nothing was written for so long."""
        self._clock.still(seconds, heard)

    def now(self, heard: float) -> float:
        """The present, on the clock of the standing."""
        return self._clock.at(None, heard)

    def facts(self, heard: float, usual: Mapping[str, float]) -> dict[str, Any]:
        """Where it stands, for an event: seconds in its stage, and until it is ready where that can be told."""
        standing, now = self.standing, self.now(heard)
        if standing is None:
            return {}
        left = self.startup.left(usual, now)
        told = {
            "phase": standing.stage.phase,
            "component": standing.stage.component,
            "done": standing.done,
            "total": standing.total,
            "behind": list(standing.behind),
            "elapsed": round(max(now - standing.since, 0.0), 1),
            "left": None if left is None else round(left, 1),
        }
        return {name: value for name, value in told.items() if value not in (None, "", [])}


class Loading:
    """A start on its way; it says what each line tells, and where the server stands."""

    def __init__(self, node: Node, remote: Remote) -> None:
        self._node, self._remote = node, remote
        version = remote.place.engine.installed if remote.place.engine else None
        self._log = Heard(node.engine, version, time.monotonic())
        self._earlier = timings.read(node, remote)
        self._said = time.monotonic()

    def hear(self, lines: Sequence[str]) -> None:
        """What came of the log at once: all of it is heard, its end is shown. Nothing where a draft was exchanged: what
        the log tells of a start is of another run's.
        """
        if self._remote.place.swaps:
            return
        heard = time.monotonic()
        for line in lines[:-SHOWN]:
            self._log.line(line, heard)
        for line in lines[-SHOWN:]:
            self._say(line, self._log.line(line, heard), heard)

    def still(self, doing: str = "") -> None:
        """Nothing came; `doing` is what it is seen to do. Tells now and then where it stands."""
        heard = time.monotonic()
        facts = self._log.facts(heard, self._earlier.usual)
        if facts and heard - self._said >= AGAIN:
            self._said = heard
            self._remote.say(doing or (self._log.standing.text if self._log.standing else ""), **facts)

    @property
    def where(self) -> str:
        """In words, where it stands: target weights for 312 s (behind: TP3); "" where nobody knows."""
        standing = self._log.standing
        if standing is None:
            return ""
        behind = f" (behind: {', '.join(standing.behind)})" if standing.behind else ""
        return f"{standing.stage} for {self._log.now(time.monotonic()) - standing.since:.0f} s{behind}"

    def finish(self) -> str:
        """It is ready: keep on the host how long its stages took; what the outcome has of it, or ""."""
        startup = self._log.startup
        took = startup.seconds(self._log.now(time.monotonic()))
        if not startup.whole or self._earlier.kept:  # heard from its middle on, or told before
            return ""
        self._remote.say("", phases=took)
        timings.keep(self._node, self._remote, took)
        longest = sorted((stage for stage in took if took[stage] >= 1), key=lambda stage: -took[stage])[:LONGEST]
        named = [f"{stage} {took[stage]:.0f} s" for stage in took if stage in longest]
        return f" ({', '.join(named)})" if named else ""

    def _say(self, line: str, told: Progress | None, heard: float) -> None:
        if told is None:
            self._remote.say("", log=line)
            return
        self._said = heard
        standing = self._log.standing
        here = not told.phase or (standing is not None and standing.stage.phase == told.phase)
        # what a rank says that is ahead of the others is no news of the server
        self._remote.say(told.text if here else "", log=line, **self._log.facts(heard, self._earlier.usual))
