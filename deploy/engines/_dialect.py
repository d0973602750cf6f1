"""How an engine's log is read for failures, as data."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass

from deploy.engines._log import Progress, Signature


@dataclass(frozen=True)
class Dialect:
    """How an engine's log is read.

    rows      its known lines
    head      what stands in front of a message: the groups `time` and `ranks`, and `process` where it has one
    headed    each line of a traceback has that head
    progress  what a whole line tells of the start
    crash     what a process says that dies of the exception below; `unknown` is then the name of the failure
    chatter   lines that a serving server writes all day, and that tell nothing here
    works     those of them that show that it generates: what was said a minute before has been survived
    draft     words of a traceback that is about the draft
    steps     lines that every rank writes, once or more often, as it comes forward
    own       lines that only this engine writes: by them a log is recognised
    begin     the line that each start writes once: a container or a unit that is restarted keeps one log
    """

    rows: tuple[Signature, ...]
    progress: Callable[[str], Progress | None]
    own: re.Pattern[str]
    head: re.Pattern[str] = re.compile(r"(?!)")
    headed: bool = False
    crash: re.Pattern[str] = re.compile(r"(?!)")
    unknown: str = "traceback"
    chatter: re.Pattern[str] = re.compile(r"(?!)")
    works: re.Pattern[str] = re.compile(r"(?!)")
    draft: tuple[str, ...] = ()
    steps: re.Pattern[str] = re.compile(r"(?!)")
    begin: re.Pattern[str] = re.compile(r"(?!)")

    def starts(self, log: str) -> list[str]:
        """The log in parts, one a start; what no start precedes is of the first one."""
        cuts = [log.rfind("\n", 0, found.start()) + 1 for found in self.begin.finditer(log)][1:]
        return [log[begin:end] for begin, end in itertools.pairwise([0, *cuts, len(log)])]
