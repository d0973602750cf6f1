"""What is wrong with a command line's flags, as the engine itself will say it after the old server is gone."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from deploy.config.schema import nearest
from deploy.findings import Finding
from deploy.flags import Grammar, Option
from deploy.flags.reading import Use, read
from deploy.text import scrub

PATTERNS = {  # what Python's own converters take
    "int": re.compile(r"\s*[-+]?\d+(_\d+)*\s*"),
    "float": re.compile(
        r"\s*[-+]?(\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(e[-+]?\d+)?\s*|\s*[-+]?(inf(inity)?|nan)\s*", re.IGNORECASE
    ),
    "size": re.compile(r"\s*[-+]?\d+(\.\d+)?[kKmMgGtT]?\s*"),
    "truth": re.compile(r"true|false|on|off|1|0", re.IGNORECASE),
}
WANTED = {
    "int": "a whole number",
    "float": "a number",
    "size": "a whole number, or one as 32k",
    "json": "JSON",
    "truth": "true or false",
}
LISTED = 12  # choices that are told one by one


def judged(words: Sequence[str], grammar: Grammar, elsewhere: Sequence[str] = ()) -> list[Finding]:
    """Everything that is wrong with the words behind the program's name.

    `elsewhere` are rows of flags, and of flags with a value, that say the same in different versions of the engine:
    "--old --new", "--flag=old --flag=new".
    """
    uses, alone = read(words, grammar)
    found = [finding for use in uses for finding in _wrong(use, grammar, elsewhere)]
    found += _twice(uses)
    if len(alone) > grammar.words:
        said = scrub.text(" ".join(alone[grammar.words :]))
        what = f"{said}: belongs to no flag, and {grammar.known} takes no such words"
        found.append(_fail(what, remedy="remove it, or name its flag"))
    return found or [Finding("flags", "PASS", f"{len(uses)} flags, all of them ones of {grammar.known}")]


def _wrong(use: Use, grammar: Grammar, elsewhere: Sequence[str]) -> Iterator[Finding]:
    option = use.option
    if option is None:
        yield _unknown(use, grammar, elsewhere)
        return
    told = option.refused or option.deprecated
    remedy = _named(told, grammar) or _other(use.said, grammar, elsewhere)
    if option.refused:
        yield _fail(f"{use.said}: {grammar.known} does not start with it", option.refused, remedy or "remove it")
        return
    if use.short_for:
        what = f"{use.said} is short for {use.short_for[0]}, and another version may have two that begin so"
        yield Finding("flags", "WARN", what, remedy=f"write {use.short_for[0]}")
    if option.deprecated:
        yield Finding("flags", "WARN", f"{use.said} is deprecated in {grammar.known}", told, remedy)
    yield from _values(use, option, grammar, elsewhere)


def _unknown(use: Use, grammar: Grammar, elsewhere: Sequence[str]) -> Finding:
    other = _other(use.said, grammar, elsewhere)
    if use.short_for:
        what = f"{use.said} may be any of {len(use.short_for)} flags of {grammar.known}"
        return _fail(what, ", ".join(use.short_for), other or "write the whole name")
    near = nearest(use.said, [name for name in grammar.by_name if name.startswith("--")])
    guess = f"did you mean {near}?" if near else "remove it, or install the version that has it"
    return _fail(f"{grammar.known} has no flag {use.said}", remedy=other or guess)


def _values(use: Use, option: Option, grammar: Grammar, elsewhere: Sequence[str]) -> Iterator[Finding]:
    number, wanted = len(use.values), option.values
    if use.key:  # of a JSON object, whose keys the engine judges as it builds its configuration
        if not number:
            yield _fail(f"{use.said} has no value")
        return
    if wanted == "0" and number:
        yield _fail(f"{use.said} takes no value", f"{use.said}={use.values[0]}", "write it bare, or leave it out")
    elif number < (int(wanted) if wanted.isdecimal() else int(wanted == "+")):
        what = {"1": "a value", "+": "at least one value"}.get(wanted, f"{wanted} values")
        yield _fail(f"{use.said} wants {what}, and has {number or 'none'}")
    for value in use.values:
        if value in option.also or wanted == "0":
            continue
        if not _converts(value, option.kind):
            yield _fail(f"{use.said} takes {WANTED[option.kind]}, not {value!r}")
        elif option.choices is not None and _plain(value, option.kind) not in option.choices:
            yield _choice(use, value, option, grammar, elsewhere)


def _plain(value: str, kind: str) -> str:
    return str(int(value)) if kind == "int" else value


def _converts(value: str, kind: str) -> bool:
    if kind == "json":
        try:
            json.loads(value)
        except (ValueError, RecursionError):
            return False
    return kind not in PATTERNS or bool(PATTERNS[kind].fullmatch(value))


def _choice(use: Use, value: str, option: Option, grammar: Grammar, elsewhere: Sequence[str]) -> Finding:
    choices = list(option.choices or ())
    other = [word.partition("=")[2] for word in _beside(f"{option.name}={value}", elsewhere)]
    near = next((word for word in other if word in choices), "") or nearest(value, choices)
    beyond = f" and {len(choices) - LISTED} others" if len(choices) > LISTED else ""
    evidence = f"it takes {', '.join(choices[:LISTED])}{beyond}"
    remedy = f"did you mean {near}?" if near else ""
    return _fail(f"{use.said}: {grammar.known} knows no {value!r}", evidence, remedy)


def _beside(said: str, elsewhere: Sequence[str]) -> list[str]:
    """What stands in a row with it."""
    return [word for row in elsewhere if said in row.split() for word in row.split() if word != said]


def _other(said: str, grammar: Grammar, elsewhere: Sequence[str]) -> str:
    """The flag by which this version says what another one says by `said`."""
    found = [(word, grammar.by_name.get(re.split("[=.]", word)[0])) for word in _beside(said, elsewhere)]
    there = [word for word, option in found if option and not option.deprecated]
    return f"use {' or '.join(there)}" if there else ""


def _named(words: str, grammar: Grammar) -> str:
    """The flag that the engine's own words tell to use."""
    found = re.search(r"\b(?:use|in favor of) (--[-\w]+)(\S*[\w>}])?", words, re.IGNORECASE)
    there = found and any(name.startswith(found[1]) for name in grammar.by_name)
    return f"use {found[1]}{found[2] or ''}" if found and there else ""


def _twice(uses: Sequence[Use]) -> Iterator[Finding]:
    """The last one counts, as argparse has it, silently, under whichever of its names."""
    said = Counter((use.option.names, use.key) for use in uses if use.option and not use.option.repeats)
    for (names, key), number in said.items():
        if number > 1:
            spelled = [use for use in uses if use.option and (use.option.names, use.key) == (names, key)]
            told = " ".join(scrub.words(word for use in spelled for word in (use.said, *use.values)))
            yield Finding("flags", "WARN", f"{spelled[-1].said} is given {number} times, and the last one counts", told)


def _fail(what: str, evidence: str = "", remedy: str = "") -> Finding:
    return Finding("flags", "FAIL", what, evidence, remedy)
