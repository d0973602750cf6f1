"""The flags of a command line, each with its values: `--flag value`, `--flag=value`, `--flag`, `-f value`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from deploy.engines import Engine
from deploy.scaffold import Word

LONG = re.compile(r"--([A-Za-z0-9][\w.-]*)(?:=(.*))?", re.DOTALL)
SHORT = re.compile(r"-([A-Za-z][\w-]*)(?:=(.*))?", re.DOTALL)


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
        said = flag(word, aliases)
        if said:
            found.append(said)
        elif found:
            last = found.pop()
            found.append(Flag(last.name, last.said, (*last.values, word), last.where, last.unknown))
        else:
            alone.append(word)
    return [part for one in found for part in _parts(one, engine)], alone


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


def flag(word: Word, aliases: Mapping[str, str]) -> Flag | None:
    """A word that is a flag, with the value behind its =; None where it is none."""
    long, short = LONG.fullmatch(word.text), SHORT.fullmatch(word.text)
    match = long or (short if short and short[1] in aliases else None)
    if match is None:
        return None
    name, dot, key = match[1].partition(".")
    plain = f"{name.replace('_', '-')}{dot}{key}"
    values = () if match[2] is None else (word.cut(match[2]),)
    unknown = "" if values else word.unknown
    return Flag(aliases.get(plain, plain), word.text.partition("=")[0], values, word.where, unknown)
