"""A command line as the engine's parser would read it: which flag each word means, and which words are its values.

The rules are those of Python's argparse (`_parse_optional`, `_get_option_tuples` of 3.11) and of vLLM's own layer on it
(utils/argparse_utils.py, 0.32); where an engine has no abbreviations only whole names count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from deploy.flags import Grammar, Option

NUMBER = re.compile(r"-\d+|-\d*\.\d+")
ANY = ("*", "+")  # number of values


@dataclass(frozen=True)
class Use:
    """One flag of the command line: what is meant by it, and its values."""

    said: str  # as it is written, without a value behind =
    option: Option | None  # None: unknown, or ambiguous
    values: tuple[str, ...] = ()
    key: str = ""  # of a dotted flag, what stands behind the first dot
    short_for: tuple[str, ...] = ()  # whole names that begin so; none where it is one itself
    inline: bool = False  # the value is behind a =


def read(words: Sequence[str], grammar: Grammar) -> tuple[list[Use], list[str]]:
    """(flags in order, words that belong to none). What stands behind an unknown flag is taken for its value."""
    uses: list[Use] = []
    alone: list[str] = []
    for word in words:
        use = _flag(word, grammar)
        if use:
            uses.append(use)
        elif uses and _takes_more(uses[-1]):
            uses[-1] = replace(uses[-1], values=(*uses[-1].values, word))
        else:
            alone.append(word)
    return uses, alone


def _takes_more(use: Use) -> bool:
    if use.inline:
        return False
    if use.option is None or (use.option.values in ANY and not use.key):
        return True
    return len(use.values) < (1 if use.key or use.option.values == "?" else int(use.option.values))


def _flag(word: str, grammar: Grammar) -> Use | None:
    """None for a word that is a value."""
    if len(word) < 2 or not word.startswith("-"):
        return None
    said, separator, inline = word.partition("=") if grammar.inline else (word, "", "")
    name, _, key = said.partition(".") if grammar.dotted else (said, "", "")
    if grammar.underscores and name.startswith("--"):
        name = name.replace("_", "-")
    use = Use(said, grammar.by_name.get(name), (inline,) if separator else (), key, inline=bool(separator))
    if use.option:
        return use
    found = list(_beginning(name, grammar)) if grammar.abbreviations else []
    if len(found) == 1:
        known, glued = found[0]
        use = replace(use, option=grammar.by_name[known], inline=use.inline or bool(glued))
        return replace(use, values=(glued,)) if glued else replace(use, short_for=(known,))
    if not found and (NUMBER.fullmatch(word) or " " in word):
        return None
    return replace(use, short_for=tuple(known for known, _ in found))


def _beginning(name: str, grammar: Grammar) -> Iterator[tuple[str, str]]:
    """(whole name that is meant, the value that is glued to it, as in -tp8)."""
    for known in grammar.by_name:
        if known.startswith(name):
            yield known, ""
        elif not name.startswith("--") and known == name[:2]:
            yield known, name[2:]
