"""What may stand next on a command line: profiles, hosts, runs, keys and their values. No host is asked.

A shell asks at every press of a key: whatever is wrong with a project, there is nothing to complete, and not a word.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from deploy.config.schema import Path as Key
    from deploy.project import Project

Items = list[CompletionItem[str]]
Completer = Callable[[click.Context, click.Parameter, str], Items]

PROFILE = "profile="
ONLY_PROFILE = frozenset({"ask", "down", "logs", "rollback", "status", "tunnel"})
ASKED = ("smoke", "bench", "gates", "ready")  # of what runs, `smoke` changes these alone


def harmless(complete: Callable[[click.Context, str], Iterable[str]]) -> Completer:
    """The candidates that begin as the word does; none where they cannot be known."""

    @wraps(complete)
    def quiet(ctx: click.Context, _: click.Parameter, incomplete: str) -> Items:
        try:
            found = list(dict.fromkeys(complete(ctx, incomplete)))
        except Exception:  # noqa: BLE001 - a traceback in the middle of somebody's command line helps nobody
            return []
        items = [word for word in found if word.startswith(incomplete) and _shown(word)]
        return [CompletionItem(word, type=_kind(word)) for word in items]

    return quiet


def _shown(word: str) -> bool:
    """Whether a line of text can hold it: names of files may be any bytes, line ends and escapes among them."""
    return word.isprintable()  # bytes that are no UTF-8 are surrogates, which are not


def _kind(word: str) -> str:
    """A word that is to be gone on with has no space behind it."""
    return "part" if word.endswith(("=", ".", "/")) else "plain"


# ---- names -------------------------------------------------------------------------------------------------------


@harmless
def profiles(ctx: click.Context, _: str) -> Iterable[str]:
    """Names of profiles."""
    return _project(ctx).profiles()


@harmless
def runs(ctx: click.Context, _: str) -> Iterable[str]:
    """Recorded runs, the last one first."""
    return _runs(ctx)


def _runs(ctx: click.Context) -> list[str]:
    from deploy import project, record

    found = project.find(chosen=ctx.params.get("project"))
    folder = record.runs_folder(found.root if found else None, os.environ)
    return sorted((run.name for run in folder.iterdir() if run.is_dir()), reverse=True)


@harmless
def loads(_ctx: click.Context, _: str) -> Iterable[str]:
    """Load generators."""
    from deploy import registry

    return registry.names("deploy.loads")


@harmless
def environments(_ctx: click.Context, _: str) -> Iterable[str]:
    """Engines that can be installed."""
    from deploy import environments as known

    return known.names()


@harmless
def files(_ctx: click.Context, incomplete: str) -> Iterable[str]:
    """Files and folders here."""
    return _files(incomplete)


@harmless
def hosts(ctx: click.Context, incomplete: str) -> Iterable[str]:
    """Hosts, groups and ranges of the inventory, the last of those that are separated by commas."""
    return _patterns(ctx, incomplete)


def _patterns(ctx: click.Context, incomplete: str) -> Iterator[str]:
    from deploy import inventory

    found = inventory.load(_project(ctx).inventory)
    before = re.match(r"(?:.*,(?![^\[]*\]))?!?", incomplete)
    for name in (*found.hosts, *found.groups, *_ranges(found.hosts), "all", inventory.LOCAL):
        yield f"{before[0] if before else ''}{name}"


def _ranges(names: Iterable[str]) -> Iterator[str]:
    """gpu[1-4] for gpu1, gpu2, gpu3 and gpu4."""
    numbered: dict[str, list[int]] = {}
    for name in names:
        if found := re.fullmatch(r"(.*?)(0|[1-9]\d*)", name):
            numbered.setdefault(found[1], []).append(int(found[2]))
    for stem, numbers in numbered.items():
        if len(numbers) > 1 and sorted(numbers) == list(range(min(numbers), max(numbers) + 1)):
            yield f"{stem}[{min(numbers)}-{max(numbers)}]"


def _project(ctx: click.Context) -> Project:
    from deploy import project

    return project.find_or_builtin(chosen=ctx.params.get("project") or ctx.params.get("folder"))


# ---- words -------------------------------------------------------------------------------------------------------


@harmless
def words(ctx: click.Context, incomplete: str) -> Iterable[str]:
    """`profile=NAME`, keys of the profile, and what may stand behind them."""
    said = tuple(ctx.params.get("words") or ())
    named = any(word.startswith(PROFILE) for word in said) or ctx.command.name == "show"
    if incomplete.startswith(PROFILE):
        return [f"{PROFILE}{name}" for name in _project(ctx).profiles()]
    if ctx.command.name == "try" and "/" in incomplete:
        return _files(incomplete)
    first = [] if named else [PROFILE]
    if ctx.command.name in ONLY_PROFILE:
        return [*first, *(_runs(ctx) if ctx.command.name == "rollback" and incomplete else ())]
    sign, key, equals, _ = re.match(r"(\+\+|[+~]?)([^=]*)(=?)(.*)", incomplete, re.DOTALL).groups()  # type: ignore[union-attr]
    if equals:
        return [f"{sign}{key}={value}" for value in _values(ctx, key, incomplete.partition("=")[2])]
    tried = _files(incomplete) if ctx.command.name == "try" else ()
    return [*first, *(f"{sign}{word}" for word in _keys(ctx, sign, key, said)), *tried]


def _keys(ctx: click.Context, sign: str, incomplete: str, said: tuple[str, ...]) -> Iterator[str]:
    """The keys at the level at which the word is: a branch ends in a dot, a leaf in an equals sign."""
    from deploy.config import schema
    from deploy.profile import Profile
    from deploy.settings import signs

    prefix = tuple(incomplete.split(".")[:-1])
    around = schema.at(Profile, prefix) if prefix else Profile
    known = _said(ctx, said) if sign in ("~", "+") or schema.part(around) is None else frozenset()
    names = _names(around, prefix, known)
    if ctx.command.name in ("smoke", "bench") and not prefix:
        names = [name for name in names if name in ASKED]
    for name in names:
        path = (*prefix, name)
        dotted, annotation = ".".join(path), schema.under(around, name)
        branch = schema.part(annotation) or schema.container(annotation) is dict
        if sign == "~":
            depths = [len(key) for key in known if key[: len(path)] == path]
            if depths and signs.may_go(path):
                yield dotted
            if branch and max(depths, default=0) > len(path):
                yield f"{dotted}."
        elif branch and (sign != "+" or _has_room(path, annotation, known)):
            yield f"{dotted}."
        if sign == "+" and not _is_free(path, known):
            continue
        if sign != "~" and (not branch or schema.shorthand(annotation)):
            yield f"{dotted}="


def _is_free(path: Key, known: Iterable[Key]) -> bool:
    """Whether + may add it: nobody says it, and nothing holds there all the same."""
    from deploy.settings import signs

    return signs.may_come(path) and not any(key[: len(path)] == path for key in known)


def _has_room(path: Key, annotation: Any, known: frozenset[Key]) -> bool:
    """Whether + may add something below it: always where the keys are free."""
    from deploy.config import schema

    part = schema.part(annotation)
    return part is None or any(_is_free((*path, name), known) for name in schema.names(part))


def _names(around: Any, prefix: Key, known: Iterable[Key]) -> list[str]:
    """The keys of a part; of a mapping those that may stand there, or those that were said."""
    from deploy.config import schema

    part = schema.part(around)
    if part is not None:
        return schema.names(part)
    said = [key[len(prefix)] for key in known if len(key) > len(prefix) and key[: len(prefix)] == prefix]
    return [*schema.key_choices(around), *said]


def _said(ctx: click.Context, said: tuple[str, ...]) -> frozenset[Key]:
    """What is said of the profile that is named, by whom ever; nothing where none is."""
    from deploy import settings
    from deploy.errors import ConfigError

    try:
        explained = settings.load(ctx.params.get("name"), said, _project(ctx), os.environ).explain()
    except ConfigError:
        return frozenset()
    return frozenset(tuple(key.split(".", 1)) for key, value, origin in explained if origin.kind != "default")


def _values(ctx: click.Context, key: str, text: str) -> Iterable[str]:
    from deploy.config import schema
    from deploy.profile import Profile
    from deploy.settings import sources

    path = sources.resolve(key, f"{key}=")
    annotation, dotted = schema.at(Profile, path), ".".join(path)
    if dotted in ("draft", "draft.path", "model", "model.path", "hooks.ready"):
        return _files(text)
    if dotted == "hosts":
        return _patterns(ctx, text)
    choices = _choices(dotted) or schema.examples(Profile, path)
    if schema.container(annotation) is list:
        before = re.match(r"\[?(?:.*,\s*)?", text)
        return [f"{before[0] if before and before[0] else '['}{choice}]" for choice in choices]
    return choices


def _choices(dotted: str) -> list[str]:
    """What there is by file."""
    from deploy import environments as known
    from deploy import registry

    if dotted in ("engine", "engine.name"):
        return registry.names("deploy.engines")
    if dotted == "engine.environment":
        return known.names()
    return registry.names("deploy.checks") if dotted == "waive" else []


def _files(text: str) -> Iterator[str]:
    """Paths that begin so, folders with a slash; `~/` stays as it is."""
    folder, _, name = text.rpartition("/")
    shown = f"{folder}/" if "/" in text else ""
    for path in sorted(Path(shown or ".").expanduser().iterdir()):
        if path.name.startswith(name) and (name.startswith(".") or not path.name.startswith(".")):
            yield f"{shown}{path.name}{'/' if path.is_dir() else ''}"
