"""The flags of a command line, each with its values: `--flag value`, `--flag=value`, `--flag`, `-f value`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from deploy import scrub
from deploy.engines import Engine
from deploy.scaffold import Word

LONG = re.compile(r"--([A-Za-z0-9][\w.-]*)(?:=(.*))?", re.DOTALL)
SHORT = re.compile(r"-([A-Za-z][\w-]*)(?:=(.*))?", re.DOTALL)
# By their names: flags that take no value, and variables that hold flags.
BARE = re.compile(r"(?:enable|disable|skip|no|trust|allow|use)-.*")
HOLDS_FLAGS = re.compile(r"(?:.*_)?(?:args?|arguments?|flags?|opts?|options?|extras?|params?)(?:_.*)?", re.IGNORECASE)


@dataclass(frozen=True)
class Flag:
    """One flag by its full name; `said` is how it was spelled; without values it is a bare one."""

    name: str
    said: str
    values: tuple[Word, ...]
    where: str
    unknown: str = ""


def read(words: Sequence[Word], engine: Engine) -> tuple[list[Flag], list[Word]]:
    """(flags in order, words in front of the first one).

    A word with one dash is a flag where the engine knows it, else a value: `-1` is a number, `-x` may be anything.
    """
    aliases = engine.ALIASES
    found: list[Flag] = []
    alone: list[Word] = []
    for word in words:
        flag = _flag(word, aliases)
        if flag:
            found.append(flag)
        elif found:
            last = found.pop()
            found.append(Flag(last.name, last.said, (*last.values, word), last.where, last.unknown))
        else:
            alone.append(word)
    return [part for flag in found for part in _parts(flag, engine)], alone


def loose(words: Sequence[Word], engine: Engine, *, model: bool) -> list[int]:
    """The places of unknown words that are no value of the flag before them: they may be flags, several words, none.

    `model`: the first word is one of its own.
    """
    found: list[int] = []
    last: Flag | None = None
    values = 0
    for place, word in enumerate(words):
        flag = _flag(word, engine.ALIASES)
        if flag and not flag.unknown:
            last, values = flag, len(flag.values)
        elif word.unknown and (flag or _is_loose(word, last, values, engine, model=model)):
            found.append(place)
        else:
            values += 1
    return found


def _is_loose(word: Word, last: Flag | None, values: int, engine: Engine, *, model: bool) -> bool:
    if word.several or word.text.startswith("-"):
        return True
    if last is None:
        return values > 0 or not model
    takes_one = last.name in engine.FIELDS or scrub.is_secret(last.name)
    if values:
        return takes_one or word.several is None
    held = any(HOLDS_FLAGS.fullmatch(name) for name in word.names)
    return word.several is None and not takes_one and (held or bool(BARE.fullmatch(last.name)))


def model(engine: Engine) -> str:
    """The flag that says the model, under which a model that is a word of its own goes too."""
    return next(flag for flag, key in engine.FIELDS.items() if key == "model.path")


def _parts(flag: Flag, engine: Engine) -> list[Flag]:
    """A flag whose value is a JSON object, where the engine knows its keys as flags: `--flag.key value`."""
    if len(flag.values) != 1 or not any(name.startswith(f"{flag.name}.") for name in engine.FIELDS):
        return [flag]
    try:
        parts = json.loads(flag.values[0].text)
    except ValueError:
        return [flag]
    if not isinstance(parts, dict):
        return [flag]
    said = {key: value if isinstance(value, str) else json.dumps(value) for key, value in parts.items()}
    return [
        replace(flag, name=f"{flag.name}.{key}", values=(flag.values[0].cut(value),)) for key, value in said.items()
    ]


def _flag(word: Word, aliases: Mapping[str, str]) -> Flag | None:
    long, short = LONG.fullmatch(word.text), SHORT.fullmatch(word.text)
    match = long or (short if short and short[1] in aliases else None)
    if match is None:
        return None
    name, dot, key = match[1].partition(".")
    plain = f"{name.replace('_', '-')}{dot}{key}"
    values = () if match[2] is None else (word.cut(match[2]),)
    unknown = "" if values else word.unknown
    return Flag(aliases.get(plain, plain), word.text.partition("=")[0], values, word.where, unknown)
