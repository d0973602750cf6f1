"""Words of a command line, some of which name files that only the host can place, and how they become a shell's."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class RunPath:
    """A file in the run's folder. Where that folder lies is known on the host alone, so a plan names it like this."""

    name: str

    def __str__(self) -> str:
        return f"$run/{self.name}"


@dataclass(frozen=True)
class HomePath:
    """A file in the home of the user who starts the server."""

    name: str

    def __str__(self) -> str:
        return f"~/{self.name}"


Word = str | RunPath | HomePath


def path(text: str) -> Word:
    """A path on the host as users write one: `~/` is the home there."""
    return HomePath(text[2:]) if text.startswith("~/") else text


def shell(words: Iterable[Word]) -> str:
    """The words as sh reads them, with the run's folder in `$1`; nothing in them is expanded but that and the home."""
    return " ".join(map(_quoted, words))


def environment(variables: Iterable[tuple[str, str]]) -> str:
    """The variables as a file that sh can source."""
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in variables)


def _quoted(word: Word) -> str:
    if isinstance(word, str):
        return shlex.quote(word)
    folder = "~" if isinstance(word, HomePath) else '"$1"'
    return f"{folder}/{shlex.quote(word.name)}"
