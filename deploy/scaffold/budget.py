"""What reading a script may cost: three lines can ask for more than any machine has."""

from __future__ import annotations

from dataclasses import dataclass

from deploy.errors import ConfigError
from deploy.scaffold import Word
from deploy.scaffold.syntax import LONGEST

STEPS = 150_000  # of reading one script: seconds, where a launch script takes a thousandth of them
PARSING = 1000  # of them for a script within a script: shfmt is started for it


@dataclass
class Budget:
    """The steps that are left."""

    left: int = STEPS

    def spend(self, steps: int, where: str) -> None:
        """Take some; ConfigError with the place in the script where none are left."""
        self.left -= steps
        if self.left < 0:
            raise ConfigError(
                f"{where}: reading the script takes more than {STEPS} steps",
                evidence="a function that calls itself, or a variable that grows with each line?",
                remedy="the command that starts the server, in a script of its own",
            )


def appended(before: Word, value: Word) -> Word:
    """The value after `A+=value`."""
    names = tuple(dict.fromkeys((*before.names, *value.names)))
    carriers = tuple(dict.fromkeys((*before.carriers, *value.carriers)))
    return fitting(Word(before.text + value.text, value.where, before.unknown or value.unknown, names, carriers))


def fitting(word: Word) -> Word:
    """The word; ConfigError where it is longer than any argument can be."""
    if len(word.text) > LONGEST:
        raise ConfigError(f"{word.where}: a value grows beyond {LONGEST >> 10} KiB, the longest that Linux hands over")
    return word
