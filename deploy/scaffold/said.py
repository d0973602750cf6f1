"""What is known of a launch so far, by the keys of a profile; and what its paths mean on the host."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deploy.config.schema import Path as Key
from deploy.scaffold import HOME, Launch, Word


@dataclass(frozen=True)
class Entry:
    """A value of the profile, and where it was said: file:line, or words for people."""

    value: Any
    where: str = ""


@dataclass
class Fields:
    """What a launch says of a profile; what it leaves unknown, by key; what is left out, in words for people."""

    launch: Launch
    local: bool  # the server runs on this machine, whose home folder is known
    engine: str = ""
    said: dict[Key, Entry] = field(default_factory=dict)
    unknown: dict[Key, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    hidden: frozenset[str] = frozenset()
    loose: list[str] = field(default_factory=list)  # words that cannot be known and belong to no key: where, and why

    def say(self, key: Key, word: Word, value: Any = None) -> None:
        """Set a key from a word of the launch, unless it cannot be known."""
        if word.unknown:
            self.unknown[key] = f"{word.where}: {'.'.join(key)}: {word.unknown}"
        else:
            self.said[key] = Entry(word.text if value is None else value, word.where)

    def leave(self, where: str, why: str) -> None:
        """Tell what is not taken over."""
        self.notes.append(f"{where}: {why}")


def checkpoint(made: Fields, word: Word, key: Key) -> Word:
    """A model or a draft: a whole path on the host. The tool reads `~/` as the home there, but for a draft here."""
    if word.unknown or word.text.startswith(("/", HOME)):
        return settled(made, word, path=key[0] == "model" or not made.local)
    whole = made.launch.whole(word.text, True)
    return word.cut(whole) if whole else Word(word.text, word.where, relative(word.text), word.names)


def relative(text: str) -> str:
    """Why a relative path cannot be known."""
    hub = ", if it is no name of the Hugging Face hub" if re.fullmatch(r"[\w.-]+/[\w.-]+", text) else ""
    return f"{text!r} lies in a folder that is not known{hub}; a whole path on the hosts is needed"


def settled(made: Fields, word: Word, *, path: bool = False) -> Word:
    """A word with the home folder in it: `~/` where the tool reads that as the home on the host."""
    if HOME not in word.text:
        return word
    if path and word.text.startswith(f"{HOME}/") and HOME not in word.text[1:]:
        return word.cut(f"~{word.text[1:]}")
    if made.local:
        return word.cut(word.text.replace(HOME, str(Path.home())))
    return Word(word.text, word.where, "has the home folder in it, which only the host knows: write it out", word.names)


def made_whole(made: Fields, word: Word) -> Word:
    """A word of any flag: whole where it is a relative path for sure."""
    if word.unknown or word.text.startswith(("/", HOME)):
        return word
    whole = made.launch.whole(word.text, False)
    if whole is None and word.text.startswith(("./", "../")):
        return Word(word.text, word.where, relative(word.text), word.names)
    return word.cut(whole) if whole else word
