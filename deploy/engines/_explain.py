"""Why a server died, or why it is silent: known lines, tracebacks and what else was seen, in the order of time."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from deploy.engines import _ending, _log, _silence
from deploy.engines._dialect import Dialect
from deploy.engines._log import Explanation, Kind, Seen, Signature
from deploy.engines._tracebacks import Line, Link, Traceback, Tracebacks, read

# What a line says that quotes a failure and goes on all the same: autotuners, optional modules, second choices.
HARMLESS = re.compile(r"(?i:skipping \w*\s?tactic|ignore import error|fall(?:s|ing)? back|fallback|\bdisabled: )")
MOST = 500  # lines of one row, and exceptions, that are looked at: a dying fleet repeats itself, and so do clients
SURVIVED = 60.0  # seconds after which a server that still generates has survived what was said before


@dataclass(frozen=True)
class Found:
    """A known line, or an exception (`row` is None: which no row knows)."""

    row: Signature | None
    line: Line
    traceback: Traceback | None = None
    link: Link | None = None

    @property
    def order(self) -> tuple[str, int]:
        return self.line.time, self.line.at

    @property
    def is_cause(self) -> bool:
        return self.row is None or self.row.kind == "cause"

    @property
    def of_others(self) -> bool:
        """Whether who tells of it is not whose fault it is: all consequences but a crash without its exception."""
        return not self.is_cause and (self.link is not None or self.traceback is None)

    @property
    def rank(self) -> str:
        named = self._groups.get("rank")
        line = self.traceback.first if self.traceback else self.line
        return f"rank {named}" if named else line.rank if line.known else ""  # else it may be anybody's

    def repeated(self, other: Found) -> bool:
        """Whether the other one only says this again: of the same exception, or of the same failure and nobody else."""
        if other is self or (self.traceback and other.traceback is self.traceback):
            return True
        return other.name == self.name and other.rank in ("", self.rank)

    @property
    def cause(self) -> str:
        return _filled(self.row.cause, self._groups) if self.row else self.line.text.strip()

    @property
    def name(self) -> str:
        return self.row.name if self.row else self.cause

    def told(self, dialect: Dialect) -> Explanation:
        """As an explanation, on its own."""
        block, link = self.traceback, self.link
        kind: Kind = "cause"
        drafts = block and any(word in block.text for word in dialect.draft) and "the draft" not in self.cause
        about = "the draft: " if drafts else ""
        if self.row is None:
            name = dialect.unknown if block and block.crash else "traceback"
            remedy = "no row knows this exception: read the log around it"
            evidence = block.text if block else self.cause
        else:
            shown = [link.innermost, *link.message] if link else self._quoted
            name, kind = self.name, self.row.kind
            remedy, evidence = _filled(self.row.remedy, self._groups), "\n".join(filter(None, shown))
        return Explanation(name, f"{about}{self.cause}", remedy, evidence, self.rank, kind=kind, time=self.line.time)

    @property
    def _quoted(self) -> list[str]:
        """The line itself, and the exception that it announces, where no row knows that."""
        last = self.traceback.links[-1] if self.traceback and self.traceback.links else None
        line = f"{self.line.head}{self.line.text}".strip()
        return [line, last.innermost, *last.message] if last else [line]

    @property
    def _groups(self) -> Mapping[str, str]:
        text = " ".join(self.link.message) if self.link else self.line.text
        found = self.row and self.row.line.search(text)
        return {name: value or "" for name, value in found.groupdict().items()} if found else {}


def _filled(text: str, groups: Mapping[str, str]) -> str:
    for name, value in groups.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def explain(dialect: Dialect, log: str, seen: Seen = _log.UNSEEN) -> Explanation | None:
    """Why it died, or why it is silent where `seen` says that it is; None where nothing shows a failure.

    What beats what: the kernel's own word, causes and crashes by time, how the process ended, consequences, and
    exceptions of which nobody says that they were the end.
    """
    search = _Search(dialect, seen)
    for line in read(log, dialect.head):
        search.hear(line)
    found = search.found()
    cause = next((one for one in found if one.is_cause), None)
    consequence = next((one for one in found if not one.is_cause), None)
    silence = _silence.explain(dialect.rows, search.heard, seen) if seen.silent is not None else None
    candidates: tuple[Explanation | Found | None, ...] = (
        _ending.by_the_kernel(seen),
        cause,
        silence,
        _ending.by_a_fault(seen),
        consequence,
        search.handled(),
        _ending.by_a_signal(seen),
    )
    chosen = next((one for one in candidates if one), None)
    if not isinstance(chosen, Found):
        return replace(chosen, consequences=tuple(_folded(found))) if chosen else None
    told = search.suspecting(chosen.told(dialect)) if chosen.of_others else chosen.told(dialect)
    others = [one for one in found if not chosen.repeated(one)]
    return replace(told, consequences=tuple(_folded(others)))


def notes(dialect: Dialect, log: str, known: Iterable[Signature] = ()) -> tuple[Explanation, ...]:
    """What is worth knowing of a server that goes on, each once: its first line, and how often it was said. Of two rows
    for one line the first is told.
    """
    rows = [row for row in (*known, *dialect.rows) if row.kind == "note"]
    runs: dict[int, list[Found]] = {}
    for line in read(log, dialect.head):
        for at, row in enumerate(rows):
            found = row.line.search(line.text)
            if found and found.groupdict().get("low", "low"):
                runs.setdefault(at, []).append(Found(row, line))
            elif found and len(runs.get(at, ())) < row.count:
                runs.pop(at, None)
            if found:
                break
    told = [(run[0].told(dialect), len(run)) for at, run in sorted(runs.items()) if len(run) >= rows[at].count]
    return tuple(replace(one, evidence=f"{one.evidence}{f'  (x {n})' if n > 1 else ''}") for one, n in told)


class _Search:
    """What a log shows, line after line."""

    def __init__(self, dialect: Dialect, seen: Seen) -> None:
        self.heard = _silence.Heard(dialect.progress, dialect.steps)
        self._dialect = dialect
        self._rows = [row for row in (*seen.known, *dialect.rows) if row.kind in ("cause", "consequence")]
        self._tracebacks = Tracebacks(dialect.crash, headed=dialect.headed)
        self._blocks: list[Traceback] = []
        self._lines: list[Found] = []
        self._told: Counter[int] = Counter()  # lines of each row

    def hear(self, line: Line) -> None:
        """The next line. What an exception says is judged when all of it has come."""
        if self._dialect.chatter.match(line.text):
            if self._dialect.works.match(line.text):
                self._survive(_log.clock(line.time))
            return
        block = self._tracebacks.of(line)
        if block and block.first is not line:
            return
        if block and (block.crash or len(self._blocks) < MOST):
            self._blocks.append(block)
        if not block:
            self.heard.hear(line)
        phase = self.heard.phase(line.source)
        if block:
            block.phase = phase
        row = self._row(line.text, phase)
        if row and self._told[id(row)] < MOST and not HARMLESS.search(line.text):
            self._told[id(row)] += 1
            self._lines.append(Found(row, line, block))

    def _survive(self, now: float | None) -> None:
        """Forget what was said a minute ago: a server that generates has not died of it."""

        def old(line: Line) -> bool:
            then = _log.clock(line.time)
            return now is not None and then is not None and now - then > SURVIVED

        if any(map(old, [one.line for one in self._lines[:1]] + [one.first for one in self._blocks[:1]])):
            self._lines = [one for one in self._lines if not old(one.line)]
            self._blocks = [one for one in self._blocks if not old(one.first)]
            self._told = Counter(id(one.row) for one in self._lines)

    def found(self) -> list[Found]:
        """Known lines and known exceptions, and unknown ones of which a process died, by time.

        That a process dies of an exception is told by the exception, where all of it is there.
        """
        exceptions = [one for one in self._exceptions() if one.row or (one.traceback and one.traceback.crash)]
        said = {id(one.traceback) for one in exceptions}
        lines = [one for one in self._lines if id(one.traceback) not in said]
        return sorted([*lines, *exceptions], key=lambda one: one.order)

    def suspecting(self, told: Explanation) -> Explanation:
        """A consequence with the ranks that may be at fault: those behind the others, or those without a word of it."""
        telling = {one.rank for one in self.found()}
        quiet = [rank for rank in self.heard.ranks if rank not in telling]
        ranks = self.heard.behind() or (quiet if len(quiet) < len(self.heard.ranks) else [])
        evidence = f"{told.evidence}\nwithout a word: {', '.join(ranks)}" if ranks else told.evidence
        return replace(told, rank=ranks[0] if len(ranks) == 1 else "", evidence=evidence)

    def handled(self) -> Found | None:
        """The first unknown exception of which nobody said that it was the end."""
        return next((one for one in self._exceptions() if one.row is None), None)

    def _exceptions(self) -> Iterator[Found]:
        """Of each traceback the known links; the last one where none is known."""
        for block in self._blocks:
            links = [(link, link.exception) for link in block.links if link.exception]
            known = [(self._row(" ".join(link.message), block.phase), line, link) for link, line in links]
            if any(row for row, _, _ in known):
                yield from (Found(row, line, block, link) for row, line, link in known if row)
            elif links:
                link, line = links[-1]
                yield Found(None, line, block, link)

    def _row(self, text: str, phase: str) -> Signature | None:
        return next((row for row in self._rows if row.phase in ("", phase) and row.line.search(text)), None)


def _folded(found: Sequence[Found]) -> Iterator[str]:
    """Each kind of line once, with how often it came and from which ranks."""
    kinds: dict[str, list[Found]] = {}
    for one in found:
        kinds.setdefault(one.name, []).append(one)
    for name, same in kinds.items():
        ranks = ", ".join(dict.fromkeys(one.rank for one in same if one.rank))
        what = f"{name}: {same[0].cause}" if same[0].row else name
        yield f"{what}{f' (x {len(same)})' if len(same) > 1 else ''}{f' [{ranks}]' if ranks else ''}"
