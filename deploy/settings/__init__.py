"""A profile's values from all the places that may say them, the later ones winning, each with its origin.

default < extends < profile < host < DEPLOY_SET_PARALLEL__TP=4 < parallel.tp=4, +env.A=1, ~env.A on the command line
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy import inventory
from deploy.config import schema, validation
from deploy.config.schema import Path as Key
from deploy.errors import ConfigError
from deploy.inventory import Host, Inventory
from deploy.profile import Profile
from deploy.project import Project
from deploy.settings import signs, sources
from deploy.settings.sources import Origin, Said


@dataclass(frozen=True)
class Settings:
    """What was said about one profile, by layer; `profile(host)` is what it comes to on a host."""

    name: str
    inventory: Inventory
    _files: tuple[Said, ...]
    _hosts: Mapping[str, tuple[Said, ...]]
    _overrides: tuple[Said, ...]

    def profile(self, host: Host | None = None) -> Profile:
        """The profile as it is on `host`, or without any host's own values. ConfigError lists all that is wrong."""
        said = self._merged(host)
        return validation.validate(Profile, {"name": self.name, **_tree(said)}, lambda path: _place(said, path))

    def hosts(self) -> tuple[Host, ...]:
        """The hosts that the profile names, in the inventory's order."""
        return self.inventory.select(self.profile().hosts)

    def origin(self, key: str, host: Host | None = None) -> Origin:
        """Where the value of a dotted key comes from."""
        return _origin(self._merged(host), sources.resolve(key, key))

    def explain(self, host: Host | None = None) -> list[tuple[str, Any, Origin]]:
        """Each dotted key of the profile with its value and where that comes from, in the order of the model."""
        said = self._merged(host)
        leaves = schema.flatten(self.profile(host).model_dump(mode="json", exclude={"name"}))
        told = [(path, value) for path, value in leaves if value is not None or path[0] != "nccl"]
        shown = {path[:length] for path, _ in told for length in range(1, len(path) + 1)}
        told += [(path, None) for path, one in said.items() if one.sign == "~" and path not in shown]
        return [(".".join(path), value, _origin(said, path)) for path, value in told]

    def _merged(self, host: Host | None) -> dict[Key, Said]:
        own = self._hosts.get(host.name, ()) if host else ()
        layers = (*self._files, *own, *self._overrides)
        merged = _merge(layers)
        drafted = {path[0] for path, said in merged.items() if said.value is not None} >= {"draft", "speculative"}
        everywhere = [said.path for of_one in self._hosts.values() for said in of_one]
        return _merge((*(sources.defaults() if drafted else ()), *layers), everywhere)


def load(
    name: str | None,
    words: Sequence[str],
    project: Project,
    environ: Mapping[str, str],
    cwd: Path | None = None,
    *,
    repeated: Sequence[str] = (),
) -> Settings:
    """All that is said about a profile: its files, the inventory, `DEPLOY_SET_*` of `environ`, `key=value` words.

    The word `profile=NAME` names it where it stands among the words. Relative paths in words and environment are
    taken from `cwd`. `repeated` are words of an earlier launch, which come first. ConfigError where something is
    unknown or cannot be read; values are judged by `profile()`.
    """
    given, _ = sources.take("profile", [*repeated, *words])
    (_, repeated), (_, words) = sources.take("profile", repeated), sources.take("profile", words)
    name = given or name
    if not name:
        known = project.profiles()
        meant = next((word for word in words if word in known), "NAME")
        raise ConfigError("no profile is named", remedy=f"profile={meant}; known: {', '.join(known)}")
    files = tuple(sources.files(name, project))
    hosts, document = inventory.read(project.inventory, project.shown(project.inventory))
    cwd = cwd or Path.cwd()
    keys = [said.path for said in files]
    said = (*sources.command_line(repeated, cwd, repeated=True), *sources.command_line(words, cwd))
    overrides = (*sources.environment(environ, cwd, keys), *said)
    own = {host.name: tuple(sources.host(host, document, project.root)) for host in hosts.hosts.values()}
    return Settings(name, hosts, files, own, overrides)


def _merge(layers: Iterable[Said], everywhere: Iterable[Key] | None = None) -> dict[Key, Said]:
    """What is said last at each key. A value takes away what was said below its key, and in place of what is above.

    ConfigError where one adds what is there, or takes away what is nowhere; `everywhere`: what any host has of its own.
    """
    merged: dict[Key, Said] = {}
    parents: set[Key] = set()  # what anything was ever said below: only there is it worth to look for it
    for said in layers:
        if said.sign and everywhere is not None:
            signs.check(said, merged, everywhere)
        above = [said.path[:length] for length in range(len(said.path))]
        below = [path for path in merged if _is_below(path, said.path)] if said.path in parents else []
        if below and not said.whole:
            continue
        for path in (*below, *above):
            merged.pop(path, None)
        merged[said.path] = said
        parents.update(above)
    return merged


def _is_below(path: Key, other: Key) -> bool:
    return len(path) > len(other) and path[: len(other)] == other


def _tree(merged: Mapping[Key, Said]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, said in merged.items():
        inner = tree
        for key in path[:-1]:
            inner = inner.setdefault(key, {})
        inner[path[-1]] = said.value
    return tree


def _place(merged: Mapping[Key, Said], path: tuple[str | int, ...]) -> str:
    """Where to look for what is wrong at `path`: at what was said there, around it, beside it; else in the file."""
    for length in range(len(path), 0, -1):
        top = tuple(str(key) for key in path[:length])
        said = merged.get(top) or next((said for key, said in merged.items() if _is_below(key, top)), None)
        if said is not None:
            return said.place(path)
    written = [said for said in merged.values() if said.document is not None]
    return written[-1].place(path) if written else "the profile"


def _origin(merged: Mapping[Key, Said], path: Key) -> Origin:
    for length in range(len(path), 0, -1):
        said = merged.get(path[:length])
        if said is not None and (length == len(path) or said.sign == "~" or not isinstance(said.value, dict)):
            return said.origin
    return Origin("default", "", None)
