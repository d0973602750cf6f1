"""A log as lines that know who wrote them and when, and the Python tracebacks in it, though ranks write at once.

Up to eight ranks write into one log, a write at a time: lines without a head belong to whoever wrote the last head,
and where that one has no traceback open, to the traceback that was opened last.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from deploy.engines import _log

OPENING = "Traceback (most recent call last):"
# Of what comes next; the last is the rule before each exception of a group.
CHAINED = re.compile(
    r"During handling of the above exception|The above exception was the direct cause|\s*\+[-+]*-+ \d+ -+"
)
GROUPED = re.compile(r"^ +[|+] ")  # in front of each line of a group of exceptions
RANKED = re.compile(r"(?P<source>\[rank(?P<rank>\d+)\]:)(?: |$)")  # torch.distributed: of who ends
EXCEPTION = re.compile(r"(?!(?:DEBUG|INFO|WARNING|ERROR|CRITICAL):)[A-Za-z_][\w.]*(?::|$)")
FRAME = re.compile(r'  File "')
BAR = re.compile(r"\d+%(?:\||\s+Completed)")
LONGEST = 8000  # characters of a line that are looked at; it has no bounds of its own
MESSAGE = 20  # lines of an exception's own words that are kept
SHOWN = 60  # lines of a traceback that are kept: its beginning and its end


@dataclass(frozen=True)
class Line:
    """One line: its head, who wrote it, and what. `time`, `source` and `rank` are those of the last head where it has
    none of its own.
    """

    at: int
    time: str
    source: str
    rank: str
    head: str
    text: str

    @property
    def known(self) -> bool:
        """Whether it says itself who wrote it."""
        return bool(self.head) or bool(RANKED.match(self.source))


def read(log: str, head: re.Pattern[str]) -> Iterator[Line]:
    """The lines of a log. `head` has the groups `time`, `ranks` and perhaps `process`; a line with two heads is two."""
    time = source = rank = ""
    at = itertools.count()
    for whole in _log.lines(log):
        line = whole[:LONGEST]
        heads = [found for found in head.finditer(line) if found[0]]
        starts = [found.start() for found in heads]
        if not heads and (ranked := RANKED.match(line)):
            yield Line(next(at), time, ranked["source"], f"rank {ranked['rank']}", "", line[ranked.end() :])
        elif not heads or starts[0] > 0:
            yield Line(next(at), time, source, rank, "", GROUPED.sub("", line[: starts[0]] if heads else line, count=1))
        for found, end in zip(heads, [*starts[1:], len(line)], strict=False):
            groups = found.groupdict()
            time = groups.get("time") or time
            rank = (groups.get("ranks") or "").replace("_", " ").strip()
            source = f"{groups.get('process') or ''}{groups.get('ranks') or ''}"
            yield Line(next(at), time, source, rank, found[0], line[found.end() : end])


@dataclass
class Link:
    """One exception of a chain: its frames, the line that names it, and all that it says."""

    frames: list[str] = field(default_factory=list)
    exception: Line | None = None
    message: list[str] = field(default_factory=list)

    @property
    def innermost(self) -> str:
        """Where it was raised."""
        return next((frame.strip() for frame in reversed(self.frames) if frame.startswith("  File ")), "")

    def takes(self, line: Line) -> bool:
        """Whether that is its next line."""
        if self.exception is None:
            if EXCEPTION.match(line.text):
                self.exception, self.message = line, [line.text.rstrip()]
                return True
            if line.text.startswith((" ", "\t")):
                self.frames.append(line.text.rstrip())
                return True
            return bool(BAR.search(line.text))
        if OPENING in line.text or BAR.search(line.text) or FRAME.match(line.text) or len(self.message) >= MESSAGE:
            return False
        self.message.append(line.text.rstrip())
        return True


@dataclass
class Traceback:
    """A chain of exceptions as it comes; `crash`: its process said that it dies of it."""

    first: Line
    crash: bool
    phase: str = ""
    links: list[Link] = field(default_factory=lambda: [Link()])
    chained: bool = False

    @property
    def text(self) -> str:
        """The last exception whole, but for the middle of a long way to it, after what those before it said."""
        whole = [link for link in self.links if link.exception]
        frames = whole[-1].frames if whole else []
        if len(frames) > SHOWN:
            frames = [*frames[: SHOWN // 3], "  ...", *frames[-2 * SHOWN // 3 :]]
        earlier = (f"after {link.message[0]}" for link in whole[:-1])
        return "\n".join([*earlier, OPENING, *frames, *(whole[-1].message if whole else ())])

    @property
    def ended(self) -> bool:
        return self.links[-1].exception is not None and not self.chained

    def takes(self, line: Line) -> bool:
        """Whether that is its next line."""
        if self.chained and OPENING in line.text:
            self.links.append(Link())
            self.chained = False
            return True
        if self.links[-1].exception and CHAINED.match(line.text):
            self.chained = True
        return self.chained or self.links[-1].takes(line)


class Tracebacks:
    """Those of a log. `headed`: each line of one has the same head (vLLM), else only the first has one (SGLang)."""

    def __init__(self, crash: re.Pattern[str], *, headed: bool) -> None:
        self._crash, self._headed = crash, headed
        self._open: dict[str, Traceback] = {}
        self._dying: str | None = None  # who has just said that it dies of an exception

    def of(self, line: Line) -> Traceback | None:
        """The traceback that the line is a part of, if it is one of any."""
        own = self._open.get(line.source)
        owner = next((one for one in self._owners(line) if self._same(one, line) and one.takes(line)), None)
        if owner and owner is own:
            return owner
        self._open = {source: one for source, one in self._open.items() if not self._ends(one, line, own)}
        if owner:
            return owner
        crash = bool(self._crash.search(line.text))
        if OPENING in line.text:
            opened = Traceback(line, crash or self._dying == line.source)
            self._open[line.source], self._dying = opened, None
            return opened
        if crash or line.head:
            self._dying = line.source if crash else None
        return None

    def _owners(self, line: Line) -> Iterator[Traceback]:
        """Whose the line may be: the last writer's, or what another writer was cut off in."""
        if own := self._open.get(line.source):
            yield own
        if not line.head and not self._headed:
            yield from [one for one in reversed(self._open.values()) if one is not own and not one.ended]

    def _ends(self, one: Traceback, line: Line, own: Traceback | None) -> bool:
        """Whether a line that is no part of a traceback shows that it has come to its end, or was broken off."""
        if one is own:
            return one.ended or bool(line.head) or OPENING in line.text  # else a stray line among its frames
        return bool(line.head) and one.ended and not self._headed

    def _same(self, owner: Traceback, line: Line) -> bool:
        return line.head == owner.first.head if self._headed else not line.head
