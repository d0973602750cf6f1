"""What an engine's log tells, as data: a line's mark of progress, and the terms in which a death is explained."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, cast

Component = Literal["target", "draft", ""]
Edge = Literal["begin", "end", ""]
Kind = Literal["cause", "consequence", "silence", "compiling", "note"]


@dataclass(frozen=True)
class Mark:
    """A line that tells how far a server is: what it shows, and what is told of it, with the pattern's groups.

    `phase` "" moves nothing: it only tells what takes time. `component` "": the line does not say of which model it is.
    `alone`: the first rank writes it for all those that are in step with it.
    """

    phase: str
    alone: bool
    component: Component
    edge: Edge
    line: re.Pattern[str]
    text: str


@dataclass(frozen=True)
class Progress:
    """How far a rank is, from one line of the log; `done` of `total` are shards or batch sizes.

    `edge` tells whether the line begins or ends its phase, `at` is the log's own clock in seconds: only differences of
    it mean something.
    """

    phase: str
    component: Component = ""
    rank: str = ""
    done: int | None = None
    total: int | None = None
    text: str = ""
    edge: Edge = field(default="", compare=False)
    at: float | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Explanation:
    """Why the server died, or why it is silent: which known failure it is ("traceback" where it is none), the lines
    that show it, the rank that was the first to tell, and what only follows from it, in words. `kind` is that of the
    row; `time` is the log's own, "" where it tells none.
    """

    signature: str
    cause: str
    remedy: str
    evidence: str
    rank: str = ""
    consequences: tuple[str, ...] = ()
    kind: Kind = "cause"
    time: str = ""


@dataclass(frozen=True)
class Seen:
    """What is known of a server beside its log; None, () and "" where nobody looked.

    `exit` is the status that launch.sh wrote (128 + n after signal n), `silent` the seconds since its last sign of
    life, `compilers` the command lines of its compiler children, `lost` the titles of those of its processes that are
    gone while their launcher lives. `oom` are the kernel's lines about those of its processes that it killed, `unread`
    is why nobody could look for them. `known` are the rows of the user's failures.yaml, which come first.
    """

    exit: int | None = None
    silent: float | None = None
    compilers: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    oom: tuple[str, ...] = ()
    unread: str = ""
    known: tuple[Signature, ...] = ()


@dataclass(frozen=True)
class Signature:
    """A known line: what it means, what to do. `phase`: only while the server was in that phase.

    cause         it died of this
    consequence   of a failure elsewhere: any cause beats it
    silence       the last that was heard before a silence without compilers; it stands in healthy logs too
    compiling     the same, while compilers work
    note          it goes on, and it is worth knowing; told after `count` such lines in a row: a match whose group
                  `low` is empty breaks the row
    """

    name: str
    line: re.Pattern[str]
    cause: str
    remedy: str
    kind: Kind = "cause"
    phase: str = ""
    count: int = 1


UNSEEN = Seen()

ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")  # ECMA-48: CSI, OSC, others
EPOCH = datetime(2000, 1, 1)  # noqa: DTZ001 - logs tell no zone, and only differences count


def lines(log: str) -> list[str]:
    """The lines of a log; a progress bar's states, parted by carriage returns, are lines too. Colours are left out."""
    return [line for line in re.split(r"[\r\n]+", ANSI.sub("", log)) if line.strip()]


def mark_rows(*rows: tuple[str, str, str, str, str]) -> tuple[Mark, ...]:
    """A table of (phase, component, edge, pattern, text); a phase with * in front is told by one rank alone."""
    return tuple(
        Mark(phase.lstrip("*"), "*" in phase, cast("Component", component), cast("Edge", edge), re.compile(line), text)
        for phase, component, edge, line, text in rows
    )


def marked(
    table: Sequence[Mark], text: str, rank: str = "", at: float | None = None, apart: str = ""
) -> Progress | None:
    """What the first of an engine's marks that the text shows tells, at its last place there; None: it shows none.

    Ranks that differ in `apart` (as "PP") are not in step.
    """
    for mark in table:
        found = None
        for found in mark.line.finditer(text):  # noqa: B007 - of several states of a bar in one line, the last
            pass
        if found:
            groups = {name: value or "" for name, value in found.groupdict().items()}
            done, total = (int(groups[name]) if groups.get("done") else None for name in ("done", "total"))
            told = mark.text.format(**groups)
            if mark.alone:
                rank = " ".join(part for part in rank.split() if apart and part.startswith(apart))
            return Progress(mark.phase, mark.component, rank, done, total, told, mark.edge, at)
    return None


def clock(told: str) -> float | None:
    """Seconds of what stands in front of a line, as 2026-11-29 20:31:30.250 or, of a leap year, 11-29 20:31:30."""
    try:
        time = datetime.fromisoformat(told if told[4:5] == "-" else f"2000-{told}")
    except ValueError:  # made by no clock
        return None
    return (time - EPOCH).total_seconds()
