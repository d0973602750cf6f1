"""A profile of what was found: complete or not at all, written, planned, and held against the original."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deploy import inventory as inventories
from deploy import settings
from deploy.config import documents, schema, validation
from deploy.config.schema import Path as Key
from deploy.errors import ConfigError, DeployError
from deploy.inventory import LOCAL, Host, Inventory
from deploy.profile import Profile
from deploy.project import INVENTORY, Project
from deploy.scaffold import fields, files, proof, starter, yaml
from deploy.scaffold.files import File
from deploy.scaffold.proof import Difference
from deploy.scaffold.said import Entry, Fields
from deploy.settings import sources


@dataclass(frozen=True)
class Target:
    """Where the profile goes: a folder, which may hold a project already, and the hosts of a new one."""

    root: Path
    project: Project | None
    hosts: tuple[Host, ...] = ()

    def inventory(self) -> tuple[Inventory, Mapping[str, File]]:
        """The inventory that there will be, and the file to write for it."""
        if self.project:
            source = self.project.shown(self.project.inventory)
            return inventories.load(self.project.inventory, source), {}
        text = starter.inventory(self.hosts)
        document = documents.parse(text.encode(), Inventory, INVENTORY)
        return validation.validate(Inventory, document.tree, document.where), {INVENTORY: File(text)}


@dataclass(frozen=True)
class Made:
    """What was written, and what there is to know about it."""

    name: str
    root: Path
    files: tuple[str, ...]
    differences: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "profile": self.name,
            "project": str(self.root),
            "files": list(self.files),
            "differences": [one.to_json() for one in self.differences],
            "notes": list(self.notes),
        }


def first(target: Target, name: str, said: dict[Key, Entry], words: Sequence[str]) -> Made:
    """A new project: inventory, profile, hook."""
    _overlay(said, words)
    for key in (("draft", "path"), ("model", "path")):
        if key in said and Path(said[key].value).is_relative_to(target.root):
            said[key] = Entry(str(Path(said[key].value).relative_to(target.root)), starter.WHY[key])
    if ("draft", "path") in said:
        said.setdefault(("speculative", "algorithm"), Entry("EAGLE3", starter.WHY["speculative", "algorithm"]))
    if target.hosts and not any(word.startswith("hosts=") for word in words):
        said["hosts",] = Entry(_one([host.name for host in target.hosts]), starter.WHY["hosts",])
    inventory, more = target.inventory()
    text = starter.profile(name, said)
    inventory.select(_checked(text, name).hosts)
    new = {f"profiles/{name}.yaml": File(text), "hooks/announce": File(starter.HOOK, executable=True), **more}
    files.write(target.root, new)
    return Made(name, target.root, tuple(new))


def from_launch(target: Target, name: str, made: Fields, words: Sequence[str], host: Host | None) -> Made:
    """The profile of a launch; in a folder without a project, an inventory as well."""
    given = _overlay(made.said, words)
    wrong = fields.unknown(made, given)
    if wrong:
        raise wrong
    _needed(made)
    inventory, more = target.inventory()
    _hosts(made, inventory, target, host)
    title = f"Made by `deploy init` of {made.launch.source}; the comments say where each value is from."
    source = made.launch.source
    text = yaml.profile(_spare(made, name, inventory, title), title, source)
    new = {f"profiles/{name}.yaml": File(text), **more}
    _checked(text, name)
    files.write(target.root, new)
    try:
        found = settings.load(name, [], Project(target.root), {})
        on = found.hosts()[0]
        planned = proof.node(found.profile(on), on)
    except DeployError:  # the inventory's own `env` and `set` may contradict it
        files.remove([target.root / one for one in new])
        raise
    return Made(name, target.root, tuple(new), tuple(proof.differences(made, planned)), tuple(made.notes))


def named(wanted: str | None, made: Fields | None, fallback: str) -> str:
    """The profile's name: the one asked for, the script's, or that under which the model is served."""
    served = made and (made.said.get(("model", "name")) or made.said.get(("model", "path")))
    last = str(served.value).rstrip("/").rpartition("/")[2].removesuffix(".gguf") if served else fallback
    name = wanted or re.sub(r"[^A-Za-z0-9_.-]+", "-", last).strip("-.")
    if not re.fullmatch(schema.LABEL, name):
        raise ConfigError(f"{name!r} cannot be a profile's name: letters, digits, _ . and -", remedy="profile=NAME")
    return name


def _overlay(said: dict[Key, Entry], words: Sequence[str]) -> list[Key]:
    """Lay the words of the command line over what was found; the keys that they say."""
    given = []
    for one in sources.command_line(words, Path.cwd()):
        given.append(one.path)
        for key in [key for key in said if key[: len(one.path)] == one.path or one.path[: len(key)] == key]:
            del said[key]
        if one.value is not None and one.value != {}:
            said[one.path] = Entry(one.value, "command line")
    return given


def _needed(made: Fields) -> None:
    missing = (
        {("model", "path"): "model", ("port",): "port"} if made.engine == "command" else {("model", "path"): "model"}
    )
    lacking = [word for key, word in missing.items() if key not in made.said and (key[0],) not in made.said]
    if lacking:
        raise ConfigError(
            f"{made.launch.where}: {' and '.join(lacking)} cannot be seen in the command line",
            remedy=f"say it: {' '.join(f'{word}=...' for word in lacking)}",
        )


def _hosts(made: Fields, inventory: Inventory, target: Target, host: Host | None) -> None:
    """Where it runs: what was asked for, where it was found, or the one host that there is."""
    if ("hosts",) not in made.said:
        there = [] if target.project else [one.name for one in target.hosts]
        if host and host.name not in {LOCAL, *inventory.hosts}:
            raise ConfigError(
                f"{host.address} is no host of {INVENTORY}",
                remedy=f"hosts=NAME, or a line for it: {host.name}: {starter.entry(host)}",
            )
        names = there or ([host.name] if host else list(inventory.hosts))
        if len(names) > 1 and not there:
            raise ConfigError("which hosts is it for?", remedy=f"hosts={names[0]}, or any of: {', '.join(names)}")
        made.said["hosts",] = Entry(_one(names), "")
    selected = inventory.select(made.said["hosts",].value)
    nodes = made.said.get(("nodes",))
    if nodes and len(selected) % int(nodes.value):
        raise ConfigError(
            f"{nodes.where}: it is one of {nodes.value} nodes, and {len(selected)} hosts are named",
            remedy="name them all: hosts=gpu1,gpu2, or --host for each",
        )
    draft = made.said.get(("draft", "path"))
    lies = host.name if host else selected[0].name
    if (
        draft
        and draft.where != "command line"
        and lies in inventory.hosts
        and inventory.hosts[lies].transport != "local"
    ):
        made.said["draft", "path"] = replace(draft, value=f"{lies}:{draft.value}")


def _spare(made: Fields, name: str, inventory: Inventory, title: str) -> dict[Key, Entry]:
    """Without what the plan says by itself: the engine's own flags and variables."""
    bare = {key: entry for key, entry in made.said.items() if key[0] not in ("env", "args") or key == ("args", "argv")}
    host = inventory.select(made.said["hosts",].value)[0]
    whole = proof.node(_checked(yaml.profile(made.said, title), name), host)
    less = proof.node(_checked(yaml.profile(bare, title), name), host)
    kept = dict(bare)
    by_itself = {("env", variable) for variable in dict(less.env)} | {("args", flag) for flag in proof.flags_of(less)}
    for key, entry in made.said.items():
        if key not in bare and key not in by_itself and isinstance(entry.value, str | list):
            kept[key] = entry  # nothing else says it; each plan that is made to see it takes milliseconds
        elif key not in bare:
            tried = {**bare, key: entry}
            one = proof.node(_checked(yaml.profile(tried, title), name), host)
            if (one.env, sorted(map(str, one.argv))) != (less.env, sorted(map(str, less.argv))):
                kept[key] = entry
    ordered = {key: entry for key, entry in made.said.items() if key in kept}
    again = proof.node(_checked(yaml.profile(ordered, title), name), host)
    return ordered if again.env == whole.env else made.said


def _checked(text: str, name: str) -> Profile:
    """The profile that a text comes to."""
    document = documents.parse(text.encode(), Profile, f"profiles/{name}.yaml")
    return validation.validate(Profile, {"name": name, **document.tree}, document.where)


def _one(names: list[str]) -> str | list[str]:
    return names[0] if len(names) == 1 else names
