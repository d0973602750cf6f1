"""Words of a command line that cannot be known and belong to no flag: told, or said by somebody with --more."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace

from deploy.engines import Called, Engine
from deploy.errors import ConfigError
from deploy.scaffold import Launch, Word, flags
from deploy.scaffold.said import Fields
from deploy.text import scrub

# By their names: flags that take no value, and variables that hold flags.
BARE = re.compile(r"(?:enable|disable|skip|no|trust|allow|use)-.*")
HOLDS_FLAGS = re.compile(r"(?:.*_)?(?:args?|arguments?|flags?|opts?|options?|extras?|params?)(?:_.*)?", re.IGNORECASE)


def settle(made: Fields, called: Called, engine: Engine, more: Sequence[str]) -> Launch:
    """The launch with what is said of its loose words in their places; where nothing is said, they are told."""
    argv = made.launch.argv
    places = [called.flags + at for at in _places(argv[called.flags :], engine, model=called.model is not None)]
    told = [f"{argv[at].where}: more words come {_from(argv[at].unknown)}" for at in places]
    if more and places and len(more) != len(places):
        raise ConfigError("\n".join(told), remedy=f"--more for each of them, in this order; {len(more)} are there")
    if not more:
        made.loose += told
    said = dict(zip(places or range(len(argv), len(argv) + len(more)), map(_split, more), strict=False))
    for at, words in said.items() if places else ():
        how = "as --more says them" if words else "left out, as --more says"
        made.leave(argv[at].where, f"the words {_from(argv[at].unknown)}, are {how}")
    words = [word for at, one in enumerate(argv) for word in (said.get(at, []) if at in places else [one])]
    added = [] if places else [word for words in said.values() for word in words]
    made.launch = replace(made.launch, argv=(*words, *added))
    return made.launch


def _from(unknown: str) -> str:
    """Where loose words come from, and why they are not known."""
    found = re.match(r"(\$(?:\( \)|\S+)) (.*)", unknown, re.DOTALL)
    return f"from {found[1]}, which {found[2]}" if found else f"here: {unknown}"


def _split(text: str) -> list[Word]:
    try:
        return [Word(word, "--more") for word in shlex.split(text)]
    except ValueError as error:
        raise ConfigError(f"--more: a quotation is not closed in it ({error})") from error


def _places(words: Sequence[Word], engine: Engine, *, model: bool) -> list[int]:
    """The places of unknown words that are no value of the flag before them: they may be flags, several words, none.

    `model`: the first word is one of its own.
    """
    found: list[int] = []
    last: flags.Flag | None = None
    values = 0
    for place, word in enumerate(words):
        flag = flags.flag(word, engine.ALIASES)
        if flag and not flag.unknown:
            last, values = flag, len(flag.values)
        elif word.unknown and (flag or _is_loose(word, last, values, engine, model=model)):
            found.append(place)
        else:
            values += 1
    return found


def _is_loose(word: Word, last: flags.Flag | None, values: int, engine: Engine, *, model: bool) -> bool:
    if word.several or word.text.startswith("-"):
        return True
    if last is None:
        return values > 0 or not model
    takes_one = last.name in engine.FIELDS or scrub.is_secret(last.name)
    if values:
        return takes_one or word.several is None
    held = any(HOLDS_FLAGS.fullmatch(name) for name in word.names)
    return word.several is None and not takes_one and (held or bool(BARE.fullmatch(last.name)))
