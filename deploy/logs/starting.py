"""A server's start as its log tells it, read after the fact or followed: what `deploy logs --phase` shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deploy import render
from deploy.engines import Engine
from deploy.engines._phases import Standing
from deploy.events import Event
from deploy.server.loading import Heard

EVERY = 5.0  # seconds of the log's time between two lines about one stage


# What `host/logs.py` begins a line with that tells whose log comes next, or for how long nothing was written.
NEXT, STILL = "\x1d", "\x1e"


class Starts:
    """The starts of which a host sends the lines, one after the other; `start` is the last one.

    `alive`: whether the first one's server lives; that of a dead one is over with the last line of its log.
    """

    def __init__(self, engine: Engine, version: str | None, *, alive: bool = True) -> None:
        self._engine, self._version, self.words, self._alive = engine, version, engine.WORDS, alive
        self.start: Start | None = None

    def lines(self, lines: Sequence[str], heard: float) -> list[str]:
        """What is to be shown of them to who follows."""
        return [told for line in lines if (told := self._line(line, heard)) is not None]

    def _line(self, line: str, heard: float) -> str | None:
        if line.startswith(STILL):
            return self._still(float(line.removeprefix(STILL)), heard)
        if not line.startswith(NEXT):
            return self.start.line(line, heard) if self.start else None
        begin, _, folder = line.removeprefix(NEXT).partition(" ")
        first = self.start is None  # the next run is followed from its launch on
        self.start = Start(self._engine, self._version, heard, int(begin), replay=first)
        return f"run {render.one_line(folder.rpartition('/')[2])}"

    def _still(self, seconds: float, heard: float) -> str | None:
        if self.start is None:
            return None
        if self._alive:
            return self.start.still(seconds, heard)
        self.start.end(heard)
        return None


class Start:
    """One start on its way. `heard` is the time of hearing, in seconds, `begin` the byte from which on its log is
    there, `replay` that it was written before it is heard.
    """

    def __init__(self, engine: Engine, version: str | None, heard: float, begin: int = 0, *, replay: bool) -> None:
        self._log, self._cut = Heard(engine, version, heard, replay=replay), begin > 0
        self._begun: float | None = None
        self._end = float("inf")
        self._told = ("", float("-inf"))

    @property
    def over(self) -> bool:
        """Whether it is ready: what its log says after that is of no start."""
        standing = self._log.standing
        return standing is not None and standing.stage == self._log.startup.order[-1]

    def line(self, line: str, heard: float) -> str | None:
        """Take in a line; what is to be shown of it to who follows: each stage, and now and then how far it is."""
        if self.over or self._log.line(line, heard) is None:
            return None
        standing, now = self._log.standing, self._log.now(heard)
        if standing is None:
            return None
        self._begun = standing.since if self._begun is None else self._begun
        stage = str(standing.stage)
        if stage == self._told[0] and now - self._told[1] < EVERY:
            return None
        return self._tell(standing, heard)

    def still(self, seconds: float, heard: float) -> str | None:
        """Nothing more is there, and nothing was written for so long; where it stands, for who follows."""
        self._log.still(seconds, heard)
        standing = self._log.standing
        return None if standing is None or self.over or self._begun is None else self._tell(standing, heard)

    def end(self, heard: float) -> None:
        """Nothing more comes, ever: its server is dead."""
        self._log.still(0.0, heard)
        self._end = heard

    def _tell(self, standing: Standing, heard: float) -> str:
        now = self._log.now(heard)
        self._told = (str(standing.stage), now)
        event = Event("said", standing.text, facts=self._log.facts(heard, {}))
        return f"{render.seconds(now - (self._begun or 0.0)).rjust(7)}  {render.doing(event)}"

    def rows(self, heard: float) -> list[str]:
        """Each stage with what it took, and where it stands."""
        document = self.document(heard)
        if document["cut"]:
            return ["the log of its start is cut off; `log.cap` says how much is kept"]
        width = max(map(len, document["seconds"]), default=0)
        rows = [f"{stage.ljust(width)}  {render.seconds(took).rjust(7)}" for stage, took in document["seconds"].items()]
        standing = self._log.standing
        if standing is None or not rows:
            return ["nothing tells how far it is"]
        if self.over:
            return [*rows, "ready"]
        event = Event("said", standing.text, facts={**self._log.facts(min(heard, self._end), {}), "elapsed": None})
        return [*rows[:-1], f"{rows[-1]}  {render.doing(event)}"]

    def document(self, heard: float) -> Mapping[str, Any]:
        """The same, for programs."""
        heard = min(heard, self._end)
        known = self._log.startup.whole or not self._cut
        facts = self._log.facts(heard, {}) if known else {}
        facts.pop("elapsed", None)  # the last of its seconds
        seconds = self._log.startup.seconds(self._log.now(heard)) if known else {}
        return {"cut": not known, "ready": self.over, "seconds": seconds, **facts}
