"""Words of a command line that may name a file of the run's own folder, and how they become a shell's words."""

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


Word = str | RunPath


def shell(words: Iterable[Word]) -> str:
    """The words as sh reads them, with the run's folder in `$run`; nothing in them is expanded but that."""
    return " ".join(f'"$run"/{shlex.quote(w.name)}' if isinstance(w, RunPath) else shlex.quote(w) for w in words)


def environment(variables: Iterable[tuple[str, str]]) -> str:
    """The variables as a file that sh can source."""
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in variables)
