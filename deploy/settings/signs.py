"""Hydra's signs before a key: `+key=value` adds what is not there, `~key` takes away what is, `++key=value` sets it
either way, as `key=value` does here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from deploy.config import schema
from deploy.config.schema import Part
from deploy.config.schema import Path as Key
from deploy.errors import ConfigError
from deploy.profile import Profile

if TYPE_CHECKING:
    from deploy.settings.sources import Said


def split(word: str) -> tuple[str, str]:
    """A word's sign ("+", "~" or "") and the word without it. ConfigError where the sign fits not."""
    found = re.match(r"\+\+|[+~]", word)
    sign = found[0].removeprefix("++") if found else ""
    rest = word[found.end() :] if found else word
    key, equals, _ = rest.partition("=")
    if sign == "~" and equals:
        raise ConfigError(f"{word!r}: ~ takes a key away, whatever its value is", remedy=f"~{key}")
    return sign, rest


def empty(key: Key, word: str) -> Any:
    """What stands at a key that was taken away: nothing in a mapping, and for a field what holds if nobody says it."""
    if not may_go(key):
        raise ConfigError(f"{word}: a profile needs {'.'.join(key)}", remedy=f"{'.'.join(key)}=... sets it")
    annotation = schema.at(Profile, key)
    if _around(key) is None or schema.optional(annotation):
        return None
    whole = schema.part(annotation) or schema.container(annotation) is dict
    return {} if whole else schema.default(Profile, key)


def may_go(key: Key) -> bool:
    """Whether a profile can be without it."""
    around = _around(key)
    return around is None or not around.model_fields[key[-1]].is_required()


def may_come(key: Key) -> bool:
    """Whether nothing holds there while nobody says it, so that + may add it."""
    default = schema.default(Profile, key)
    return default is None or isinstance(default, dict | Part)


def _around(key: Key) -> type[BaseModel] | None:
    """The part in which a key stands; None for a mapping."""
    return schema.part(schema.at(Profile, key[:-1])) if key[1:] else Profile


def check(said: Said, merged: Mapping[Key, Said], elsewhere: Iterable[Key]) -> None:
    """ConfigError where a value that is to be added is there, or one that is to go is not.

    `elsewhere` are keys that hosts have of their own: what is there on one of them may be taken away from all.
    """
    near = [other for path, other in merged.items() if _touches(path, said.path)]
    there = [other for other in near if other.sign != "~" and other.value not in (None, {})]
    if said.sign == "+":
        _is_new(said, there)
    elif not there and not any(_touches(path, said.path) for path in elsewhere):
        raise _nobody_says(said, merged)


def _is_new(said: Said, there: list[Said]) -> None:
    dotted, default = ".".join(said.path), schema.default(Profile, said.path)
    if there:
        origin = there[-1].origin
        why = f"is there already, by {origin.kind} {origin.where}".rstrip()
    elif may_come(said.path):
        return
    elif isinstance(default, list):
        why = "is a list, which is set as a whole"
    else:
        why = f"is {default} where nobody says it"
    raise ConfigError(f"{said.origin.where}: {dotted} {why}", remedy=f"{dotted}=... sets it; + only adds")


def _nobody_says(said: Said, merged: Mapping[Key, Said]) -> ConfigError:
    dotted, default = ".".join(said.path), schema.default(Profile, said.path)
    what = f"{said.origin.where}: nobody says {dotted}"
    if default is not None and not isinstance(default, dict | Part):
        return ConfigError(f"{what}: {default} is its default")
    near = schema.nearest(dotted, [".".join(path) for path, other in merged.items() if other.value is not None])
    return ConfigError(what, remedy=f"did you mean ~{near}?" if near else "")


def _touches(path: Key, other: Key) -> bool:
    """Whether one of them is, or lies below, the other."""
    shorter = min(len(path), len(other))
    return path[:shorter] == other[:shorter]
