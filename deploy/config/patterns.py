"""Words that name hosts: `gpu1`, `gpu[1-4]`, `gpu[01-16]`, `gpu*`, a group, `all`, and `!` before what is not meant."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator, Mapping

from deploy.config import schema
from deploy.errors import ConfigError

MOST = 10_000  # hosts that one pattern may spell out

Groups = Mapping[str, list[str]]


def select(words: Iterable[str], names: list[str], groups: Groups) -> list[str]:
    """The `names` that are meant, in their order. What is excluded is so wherever in the list its ! stands."""
    split = [word for text in words for word in _split(text)]
    excluded = {
        name for word in split if word.startswith("!") for name in _matches(word[1:], names, groups, whole=False)
    }
    asked = [word for word in split if not word.startswith("!")] or ["all"]
    included = {name for word in asked for name in _matches(word, names, groups)}
    if not split:
        raise ConfigError("no hosts are named", remedy=f"known: {', '.join([*names, *groups])}")
    chosen = [name for name in names if name in included - excluded]
    if not chosen:
        raise ConfigError(f"{', '.join(split)}: leaves no host")
    return chosen


def circles(groups: Groups) -> Iterator[tuple[tuple[str, ...], str]]:
    """Each group that contains itself, as (path, what is wrong)."""
    for name in groups:
        reached: set[str] = set()
        waiting = list(groups[name])
        while waiting:
            word = waiting.pop().lstrip("!")
            if word in groups and word not in reached:
                reached.add(word)
                waiting.extend(word for text in groups[word] for word in _split(text))
        if name in reached:
            yield ("groups", name), "contains itself"


def _split(text: str) -> list[str]:
    """The words of a comma-separated list; a comma inside brackets belongs to its word."""
    return [word.strip() for word in re.split(r",(?![^\[]*\])", text) if word.strip()]


def _matches(word: str, names: list[str], groups: Groups, *, whole: bool = True) -> list[str]:
    """The names meant by one word; `whole`: every host that a range spells out must be there."""
    if word in names:
        return [word]
    if word == "all":
        return list(groups.get("all", names))
    if word in groups:
        return select(groups[word], names, groups)
    spelled = {pattern: fnmatch.filter(groups.get("all", names), pattern) for pattern in _spelled(word)}
    missing = [pattern for pattern, found in spelled.items() if not found]
    if not missing or (len(missing) < len(spelled) and not whole):
        return [name for found in spelled.values() for name in found]
    word = word if len(missing) == len(spelled) else ", ".join(missing)
    near = schema.nearest(word, [*names, *groups])
    remedy = f"did you mean {near}?" if near else f"known: {', '.join([*names, *groups])}"
    raise ConfigError(f"no host and no group is meant by {word!r}", remedy=remedy)


def _spelled(word: str) -> list[str]:
    """`gpu[1-3,7]` as gpu1, gpu2, gpu3, gpu7; a range keeps its zeros in front."""
    found = re.search(r"\[([0-9,\s-]+)\]", word)
    if found is None:
        return [word]
    before, after = word[: found.start()], word[found.end() :]
    numbers = [number for part in found[1].split(",") for number in _range(part.strip(), word)]
    return [f"{before}{number}{rest}" for number in numbers for rest in _spelled(after)]


def _range(part: str, word: str) -> list[str]:
    found = re.fullmatch(r"(\d+)(?:\s*-\s*(\d+))?", part)
    if found is None:
        raise ConfigError(f"{word!r} is not a pattern", remedy="write ranges as in gpu[1-4] or gpu[1,3,5-7]")
    first, last = found[1], found[2] or found[1]
    if int(last) < int(first) or int(last) - int(first) >= MOST:
        raise ConfigError(f"{word!r}: {part} is not a range", remedy="write the lower number first")
    return [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
