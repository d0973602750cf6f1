"""What a long silence means: the last that was heard, who lags behind, and whether compilers work."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence

from deploy.engines._log import Explanation, Kind, Progress, Seen, Signature
from deploy.engines._tracebacks import Line

KEPT = 30  # lines after the last step forward, among which the telling one may be
SHOWN = 3  # of them, as evidence
COMPILERS = 3  # of them, as evidence
# Where no row of the engine's table knows better: (name, what it means, what to do).
COMPILING = (
    "compiling",
    "it compiles kernels in the phase {phase}; that is slow, and no hang",
    "wait; the next start finds them in the cache, if that is kept",
)
SILENT = ("silent", "it is silent in the phase {phase}", "look at its stacks (py-spy dump), and at `deploy logs`")


class Heard:
    """How far each of a log's writers came."""

    def __init__(self, progress: Callable[[str], Progress | None], steps: re.Pattern[str]) -> None:
        self.last: deque[Line] = deque(maxlen=KEPT)
        self.step: Progress | None = None
        self.ranks: dict[str, None] = {}  # in the order in which they were heard
        self._progress, self._steps = progress, steps
        self._phases: dict[str, str] = {}
        self._done: dict[str, int] = {}

    def hear(self, line: Line) -> None:
        """The next line that is no part of a traceback."""
        step = self._progress(f"{line.head}{line.text}")
        if step:
            self.last.clear()
        if step and step.phase:  # a line without one only tells what takes time
            self.step = step
            self._phases[line.source] = self._phases[""] = step.phase
        self.last.append(line)
        if line.rank:
            self.ranks[line.rank] = None
        if line.rank and self._steps.search(line.text):
            self._done[line.rank] = self._done.get(line.rank, 0) + 1

    def phase(self, source: str) -> str:
        """In which phase a writer is; in which the last one was where it has told none."""
        return self._phases.get(source) or self._phases.get("", "")

    def behind(self) -> list[str]:
        """The ranks that have come less far than others."""
        most = max(self._done.values(), default=0)
        return [rank for rank, done in self._done.items() if done < most]


def explain(rows: Sequence[Signature], heard: Heard, seen: Seen) -> Explanation | None:
    """What a silence of `seen.silent` seconds means after the last that was heard; None of a server that is ready."""
    if heard.step and heard.step.phase == "ready":
        return None
    kind: Kind = "compiling" if seen.compilers else "silence"
    last = [line.text for line in heard.last] or [""]
    words = [f"{line.head}{line.text}".strip() for line in (*list(heard.last)[:1], *list(heard.last)[1:][-SHOWN:])]
    behind = heard.behind()
    if behind:
        words.append(f"behind the others: {', '.join(behind)}")
    evidence = "\n".join([*words, *seen.compilers[:COMPILERS]])
    rank = behind[0] if len(behind) == 1 else ""
    for row in rows:
        if row.kind == kind and any(row.line.search(text) for text in last):
            return Explanation(row.name, row.cause, row.remedy, evidence, rank, kind=kind)
    name, cause, remedy = COMPILING if seen.compilers else SILENT
    cause = cause.format(phase=heard.step.phase if heard.step else "start")
    return Explanation(name, cause, remedy, evidence, rank, kind=kind)
