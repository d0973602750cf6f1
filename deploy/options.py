"""What a command that talks to hosts was told, as data; `commands/_options.py` reads it from the command line."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.text import scrub

if TYPE_CHECKING:
    from deploy.render import Output


@dataclass(frozen=True)
class Options:
    """What every command that talks to hosts may be told."""

    words: tuple[str, ...]
    project: Path | None
    hosts: str | None
    yes: bool
    output: Output
    verbosity: int

    @property
    def json(self) -> bool:
        return self.output == "json"

    def command(self, *words: str) -> str:
        """A command with these options' words, as others may see it."""
        return " ".join(scrub.words((*words, *self.words)))


def typed() -> str:
    """The whole command line as it was typed, as others may see it."""
    return shlex.join(scrub.words(["deploy", *sys.argv[1:]]))


def environ() -> dict[str, str]:
    """The environment as it is now."""
    return dict(os.environ)
