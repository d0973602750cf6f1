"""A first project, and profiles of servers that run already or that a script starts.

shell, expansion, syntax   a launch script -> how it starts a server; nothing of it is ever run
process                    a running server -> the same
fields, flags, kept        how a server is started -> what a profile says of it
patterns, budget           numbers, patterns and braces as a shell sees them; how long reading may take
loose                      words of it that cannot be known and belong to no flag
proof                      the profile's plan against the original: every difference
yaml, starter, files       a profile as a person would write it; a new project; written whole or not at all
ahead                      what is to be done before the first `up`
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

HOME = "\0"  # in a word: the home of the user on the host; no argument and no variable can hold this character


@dataclass(frozen=True)
class Word:
    """One word of a command line or the value of a variable, and where it is written.

    `unknown` says why it cannot be known before it runs; `names` are the variables that are in it, `carriers` those of
    them that hold flags or several words. `several`: whether an unknown one stands for any number of words; None: it is
    not quoted, and may.
    """

    text: str
    where: str = ""
    unknown: str = ""
    names: tuple[str, ...] = ()
    carriers: tuple[str, ...] = ()
    several: bool | None = False

    def cut(self, text: str) -> Word:
        """A part of it."""
        return replace(self, text=text)


@dataclass(frozen=True)
class Launch:
    """How a server is started: its words, its environment, its folder.

    `host` is where, as ssh names it; `condition` what decides whether; `blocked` why it cannot be taken over;
    `port` the one on which it listens, where its words do not say it;
    `whole` makes a relative path whole; its second argument says whether it is a path for sure (None: not known).
    """

    source: str
    where: str
    argv: tuple[Word, ...]
    env: Mapping[str, Word]
    host: str = ""
    condition: str = ""
    blocked: str = ""
    notes: tuple[str, ...] = ()
    port: int | None = None
    whole: Callable[[str, bool], str | None] = field(default=lambda _, __: None)
