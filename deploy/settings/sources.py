"""Where a profile's values are said: files, hosts, environment, command line; each as a list of what it says."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from deploy.config import documents, schema
from deploy.config.schema import Path as Key
from deploy.errors import ConfigError
from deploy.inventory import Host
from deploy.profile import DEFAULT_GATES, Profile
from deploy.project import Project
from deploy.settings import extends, signs

Kind = Literal["default", "extends", "profile", "host", "environment", "command line"]

PREFIX = "DEPLOY_SET_"
OF_ALL_HOSTS = (
    "hosts",
    "nodes",
    "engine.name",
    "draft.path",
    "speculative",
    "smoke",
    "bench",
    "gates",
    "hooks",
    "on_failure",
    "evict",
    "secrets",
    "waive",
)


@dataclass(frozen=True)
class Origin:
    """Where a value comes from: the kind of place, the place itself (file:line, variable, word), what was said."""

    kind: Kind
    where: str
    value: Any


@dataclass(frozen=True)
class Said:
    """One value at one key, and its origin. `whole`: it replaces all that was said below the key.

    `sign`: + where nothing may be there yet, ~ where it is taken away; "" for the words of an earlier launch, too.
    """

    path: Key
    value: Any
    origin: Origin
    whole: bool = True
    document: documents.Document | None = None
    sign: str = ""

    def place(self, path: tuple[str | int, ...]) -> str:
        """Where in it the value at `path` stands; what is inside a list has a line of its own."""
        return self.document.where(path) if self.document else self.origin.where


def files(name: str, project: Project) -> Iterator[Said]:
    """What the profile's file says, after what the profiles say that it extends."""
    for depth, document, root in reversed(list(extends.chain(name, project))):
        kind: Kind = "extends" if depth else "profile"
        body = {key: _spelled_out((key,), value) for key, value in extends.body(document).items()}
        yield from _said(body, kind, document, root)


def host(of: Host, document: documents.Document, root: Path) -> Iterator[Said]:
    """What the inventory says for one host: its `env`, and the profile's keys in its `set`."""
    top = ("hosts", of.name)
    for variable, value in of.env.items():
        where = document.where((*top, "env", variable))
        yield Said(("env", variable), value, Origin("host", where, value))
    for path, value in schema.flatten(of.set):
        where = document.where((*top, "set", *path))
        key = resolve(".".join(path), where)
        _may_differ(key, where)
        yield from _override(key, value, Origin("host", where, value), root)


def environment(environ: Mapping[str, str], cwd: Path, known: Iterable[Key] = ()) -> Iterator[Said]:
    """`DEPLOY_SET_PARALLEL__TP=4` is parallel.tp=4. `known` keys tell how a flag is spelled: args are no variables."""
    for variable in sorted(environ):
        if not variable.upper().startswith(PREFIX) or variable.upper() == f"{PREFIX}PROFILE":
            continue
        words = variable[len(PREFIX) :].split("__")
        key = resolve(".".join(words), variable, spelled=_spelled(words, known))
        yield from _override(key, environ[variable], Origin("environment", variable, environ[variable]), cwd)


def command_line(words: Iterable[str], cwd: Path, *, repeated: bool = False) -> Iterator[Said]:
    """`key=value` words; what stands after the first = is the value as it is. `+key=value` adds, `~key` takes away.

    `repeated` are those of an earlier launch, which were judged then.
    """
    for word in words:
        sign, rest = signs.split(word)
        key, found, text = rest.partition("=")
        if not key or not (found or sign == "~"):
            raise ConfigError(f"{word!r} is not key=value", remedy="options begin with --")
        path, origin = resolve(key, f"{key}="), Origin("command line", word, text)
        if sign == "~":
            said: Iterable[Said] = (Said(path, signs.empty(path, word), origin),)
        elif sign == "+":  # to a mapping each key is added on its own, beside those that are there
            said = (one for one in _override(path, text, origin, cwd) if (one.path, one.value) != (path, {}))
        else:
            said = _override(path, text, origin, cwd)
        yield from (replace(one, sign="" if repeated else sign) for one in said)


def take(key: str, words: Sequence[str]) -> tuple[str | None, list[str]]:
    """The value of a word that is no key of the profile, such as profile=NAME, and the other words."""
    mine = [word for word in words if word.partition("=")[:2] == (key, "=")]
    if len(set(mine)) > 1:
        raise ConfigError(f"{' and '.join(mine)}: one is meant", remedy=f"say one {key}")
    value = mine[-1].partition("=")[2] if mine else None
    return value, [word for word in words if word not in mine]


def defaults() -> Iterator[Said]:
    """What holds where there is a draft and nothing is said: acceptance is judged."""
    for measure, gate in DEFAULT_GATES.items():
        yield Said(("gates", measure), gate, Origin("default", "", gate))


def resolve(text: str, where: str, *, spelled: Key | None = None) -> Key:
    """A dotted key as a path of the model; a name under a free mapping may have dots itself. ConfigError if unknown."""
    words = text.split(".")
    path: list[str] = []
    annotation: Any = Profile
    while words:
        model = schema.part(annotation)
        if model is None and schema.container(annotation) is dict:
            path.append(spelled[-1] if spelled else ".".join(words))
            return tuple(path)
        names = {name.casefold(): name for name in schema.names(model)} if model else {}
        name = names.get(words.pop(0).casefold())
        if name is None:
            raise _unknown(text, where)
        path.append(name)
        annotation = schema.under(annotation, name)
    return tuple(path)


def _unknown(text: str, where: str) -> ConfigError:
    known = list(schema.keys(Profile))
    near = schema.nearest(text.casefold() if text.isupper() else text, known)
    remedy = f"did you mean {near}?" if near else f"known: {', '.join(key for key in known if '.' not in key)}"
    at = "" if where == f"{text}=" else f"{where}: "
    return ConfigError(f"{at}there is no key {text!r} in a profile", remedy=remedy)


def _spelled(words: list[str], known: Iterable[Key]) -> Key:
    """The name under a free mapping that a variable means: env as it is, flags with dashes, gates in lower case."""
    top, name = words[0].casefold(), "__".join(words[1:])
    if top == "args":
        same = [key for key in known if key[0] == "args" and _folded(key[-1]) == _folded(name)]
        return same[-1] if same else ("args", name.lower().replace("_", "-") if name.isupper() else name)
    return (top, name.lower() if top == "gates" else name)


def _folded(flag: str) -> str:
    return flag.casefold().replace("_", "-")


def _may_differ(key: Key, where: str) -> None:
    dotted = ".".join(key)
    if any(f"{dotted}.".startswith(f"{fixed}.") or fixed.startswith(f"{dotted}.") for fixed in OF_ALL_HOSTS):
        raise ConfigError(f"{where}: {dotted} is the same on all hosts of a deployment; a host cannot set it")


def _override(key: Key, value: Any, origin: Origin, root: Path) -> Iterator[Said]:
    """One key set from outside the profile's files; text is read as the key's type wants it."""
    annotation = schema.at(Profile, key)
    read = documents.read(value, annotation, origin.where) if isinstance(value, str) else value
    yield from _expanded(key, _spelled_out(key, read), origin, root)


def _said(tree: Mapping[str, Any], kind: Kind, document: documents.Document, root: Path) -> Iterator[Said]:
    for path, value in schema.flatten(tree):
        origin = Origin(kind, document.where(path), value)
        yield Said(path, _based(path, value, root), origin, whole=value != {}, document=document)


def _expanded(key: Key, value: Any, origin: Origin, root: Path) -> Iterator[Said]:
    """A mapping is said leaf by leaf, after all below its key was taken away, but for a shorthand: it is one leaf."""
    if not isinstance(value, dict):
        yield Said(key, _based(key, value, root), origin)
        return
    shorthand = schema.shorthand(schema.at(Profile, key))
    if not (shorthand and isinstance(origin.value, str) and not origin.value.lstrip().startswith("{")):
        yield Said(key, {}, origin)
    for path, leaf in schema.flatten(value, key):
        yield Said(path, _based(path, leaf, root), origin)


def _based(path: Key, value: Any, root: Path) -> Any:
    """A relative path taken from the folder of who says it."""
    if path in (("model", "path"), ("draft", "path")):
        return _absolute(value, root)
    if path == ("bench", "prompts") and isinstance(value, str) and value.endswith((".jsonl", ".json")):
        return _absolute(value, root)
    if path[0] == "hooks" and isinstance(value, list):
        return [_hook(hook, root) for hook in value]
    return value


def _hook(hook: Any, root: Path) -> Any:
    return {**hook, "run": _absolute(hook["run"], root)} if isinstance(hook, dict) and "run" in hook else hook


def _absolute(text: Any, root: Path) -> Any:
    """`text` itself where it is absolute, of some user's home, or host:path."""
    if not isinstance(text, str) or not text or text.startswith(("/", "~")) or re.match(r"[^/:]+:", text):
        return text
    return os.path.normpath(root / text)


def _spelled_out(key: Key, value: Any) -> Any:
    """A plain list of secrets as the mapping that it stands for, so that it can be merged with another."""
    return dict.fromkeys(map(str, value), "env") if key == ("secrets",) and isinstance(value, list) else value
