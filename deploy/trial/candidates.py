"""What `deploy try` tries: checkpoints, and values of keys, each with each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from deploy.errors import ConfigError
from deploy.text import scrub

KEYED = re.compile(r"[+]?[\w.-]+=|~[\w.-]+$")  # key=value, +key=value, ~key; anything else is a checkpoint
PAIRS = {"(": ")", "[": "]", "{": "}"}


@dataclass(frozen=True)
class Candidate:
    """One of them: its checkpoint, if checkpoints are tried, and the words in which it differs from others."""

    ckpt: str | None
    words: tuple[str, ...]

    @property
    def name(self) -> str:
        """As its row is called."""
        return " ".join(([self.ckpt] if self.ckpt else []) + self.told)

    @property
    def told(self) -> list[str]:
        """Its words, without what is a secret by its name."""
        return scrub.words(self.words)


def of(words: Sequence[str]) -> tuple[tuple[str, ...], list[Candidate]]:
    """The words that all have in common, and every candidate. ConfigError where there is nothing to try.

    `key=v1,v2` is two values; a comma within brackets or quotes divides nothing. A word that is a file or a folder here
    is a checkpoint, whatever is in its name.
    """
    keyed = [word for word in words if KEYED.match(word) and not Path(word).exists()]
    ckpts = list(dict.fromkeys(word for word in words if word not in keyed))
    swept = [(key, list(dict.fromkeys(_values(text)))) for key, text in _said(keyed)]
    common = [word for word in keyed if word not in {f"{key}={text}" for key, text in _said(keyed)}]
    common += [f"{key}={values[0]}" for key, values in swept if len(values) == 1]
    several = [[f"{key}={value}" for value in values] for key, values in swept if len(values) > 1]
    if not ckpts and not several:
        raise ConfigError(
            "nothing to try", remedy="deploy try CKPT CKPT ..., or values of a key: speculative.num_steps=3,4,5"
        )
    tried: list[str | None] = [*ckpts] or [None]
    return tuple(common), [Candidate(ckpt, words) for ckpt in tried for words in product(*several)]


def _said(words: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(key, text) of each word that has a value."""
    return ((key, text) for key, sign, text in (word.partition("=") for word in words) if sign)


def _values(text: str) -> list[str]:
    """Divided at its commas, but for those in brackets and in quotes; what is quoted whole is one value."""
    if len(text) > 1 and text[0] in "'\"" and text[0] == text[-1] and text[0] not in text[1:-1]:
        return [text[1:-1]]
    values, quote = [""], ""
    inside: list[str] = []
    for letter in text:
        if letter == "," and not quote and not inside:
            values.append("")
            continue
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in PAIRS:
            inside.append(PAIRS[letter])
        elif inside and letter == inside[-1]:
            inside.pop()
        values[-1] += letter
    return [value for value in values if value] or [text]
