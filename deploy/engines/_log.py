"""What an engine's log tells, as data: how far the server is, and why it died."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

Component = Literal["target", "draft", ""]
Mark = tuple[str, Component, re.Pattern[str], str]  # phase, component, what a line shows, what is told of it


@dataclass(frozen=True)
class Progress:
    """How far the server is, from one line of its log; `done` of `total` are shards, batch sizes or per cent."""

    phase: str
    component: Component = ""
    rank: str = ""
    done: int | None = None
    total: int | None = None
    text: str = ""


@dataclass(frozen=True)
class Explanation:
    """Why the server died, or why it is silent: which known failure it is ("traceback" where it is none), the lines
    that show it, the rank that was the first to tell, and the lines that only follow from it.
    """

    signature: str
    cause: str
    remedy: str
    evidence: str
    rank: str = ""
    consequences: tuple[str, ...] = ()


@dataclass(frozen=True)
class Seen:
    """What is known of a server beside its log; None and () where nobody looked.

    `exit` is the status that launch.sh wrote (128 + n after signal n), `silent` the seconds since its last sign of
    life, `compilers` the command lines of its compiler children, `oom` the kernel's lines about those of its processes
    that it killed. `known` are the rows of the user's failures.yaml, which come first.
    """

    exit: int | None = None
    silent: float | None = None
    compilers: tuple[str, ...] = ()
    oom: tuple[str, ...] = ()
    known: tuple[Signature, ...] = ()


@dataclass(frozen=True)
class Signature:
    """A known failure: the line that shows it, what it means, what to do."""

    name: str
    line: re.Pattern[str]
    cause: str
    remedy: str
    consequence: bool
    phase: str


@dataclass(frozen=True)
class Traceback:
    """A Python traceback in a log: its innermost frame, the exception's own line, and the whole of it."""

    frame: str
    last: str
    text: str


UNSEEN = Seen()

ROW = re.compile(
    r"^(?P<name>[\w-]+)(?P<consequence>~?)(?:@(?P<phase>\S+))?  (?P<line>.+)\n    (.+)\n    -> (.+)$", re.MULTILINE
)
TRACEBACK = "Traceback (most recent call last):"


def table(text: str) -> tuple[Signature, ...]:
    """The rows of a table of failures, three lines each; ValueError for a text that is not all rows."""
    if ROW.sub("", text).strip():
        raise ValueError(f"not a row of the table: {ROW.sub('', text).strip()[:200]}")
    return tuple(
        Signature(row["name"], re.compile(row["line"]), row[5], row[6], bool(row["consequence"]), row["phase"] or "")
        for row in ROW.finditer(text)
    )


def lines(log: str) -> list[str]:
    """The lines of a log; a progress bar's states, parted by carriage returns, are lines too."""
    return [line for line in re.split(r"[\r\n]+", log) if line.strip()]


def marked(marks: Sequence[Mark], text: str, rank: str = "") -> Progress | None:
    """How far the server is by the first of an engine's marks that the text shows; None where it shows none."""
    for phase, component, pattern, words in marks:
        if found := pattern.search(text):
            groups = {name: value or "" for name, value in found.groupdict().items()}
            done, total = counts(groups) if "done" in groups else (None, None)  # `total` alone may be ranks
            return Progress(phase, component, rank, done, total, words.format(**groups))
    return None


def counts(groups: Mapping[str, str]) -> tuple[int | None, int | None]:
    """The groups `done` and `total` as numbers."""
    done, total = groups.get("done"), groups.get("total")
    return int(done) if done else None, int(total) if total else None


def first_traceback(log_lines: Sequence[str]) -> Traceback | None:
    """The first complete traceback of a log."""
    start = next((at for at, line in enumerate(log_lines) if TRACEBACK in line), len(log_lines))
    frame = ""
    for at in range(start + 1, len(log_lines)):
        line = log_lines[at]
        if line.startswith("  File "):
            frame = line.strip()
        elif not line.startswith(" "):
            return Traceback(frame, line.strip(), "\n".join(log_lines[start : at + 1]))
    return None


def first_cause(
    log_lines: Sequence[str],
    signatures: Sequence[Signature],
    progress: Callable[[str], Progress | None],
    traceback: Traceback | None,
) -> Explanation | None:
    """The earliest line with a known cause; else the first traceback; else the earliest known consequence."""
    phase, consequence = "", None
    for line in log_lines:
        step = progress(line)
        phase = step.phase if step else phase
        row = next((row for row in signatures if row.phase in ("", phase) and row.line.search(line)), None)
        if row is None:
            continue
        told = Explanation(row.name, row.cause, row.remedy, line.strip())
        if not row.consequence:
            return _with_frame(told, traceback)
        consequence = consequence or told
    if traceback and not (consequence and traceback.last in consequence.evidence):
        told = Explanation("traceback", traceback.last, "read the log around its first traceback", traceback.last)
        return _with_frame(told, traceback)
    return consequence


def _with_frame(told: Explanation, traceback: Traceback | None) -> Explanation:
    """Where the line ends a traceback, show its innermost frame as well."""
    if traceback and traceback.frame and traceback.last == told.evidence:
        return replace(told, evidence=f"{traceback.frame}\n{traceback.last}")
    return told


def about(component: str, told: Explanation) -> Explanation:
    """The same, said of one component."""
    return replace(told, cause=f"{component}: {told.cause}")
