"""Whether what runs is what its profile says today: which keys differ, in the project at hand."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from deploy import settings
from deploy.config import schema
from deploy.errors import ConfigError
from deploy.plan import Node
from deploy.profile import Profile
from deploy.project import Project
from deploy.settings import Settings
from deploy.state import Run

MOST = 3  # keys that a cell names


class Drift:
    """Compares runs with the profiles of one project, each of which is read once."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._read: dict[tuple[str, ...], Settings | str] = {}

    def of(self, run: Run, node: Node) -> dict[str, Any]:
        """{"keys": {key: [what runs, what the profile says]}}, or {"error": why that cannot be told}.

        The words with which it was launched count as said: they are no drift, and a `restart` says them again.
        """
        said = self._settings(run, node)
        if isinstance(said, str):
            return {"error": said}
        try:
            wished = said.profile(said.inventory.hosts.get(node.host.name))
        except ConfigError as error:
            return {"error": error.what}
        return {"keys": dict(differing(node.profile, wished, str(self._project.root)))}

    def _settings(self, run: Run, node: Node) -> Settings | str:
        words = tuple((run.manifest or {}).get("words") or ())
        key = (node.deployment, *words)
        if key not in self._read:
            try:
                self._read[key] = settings.load(node.deployment, (), self._project, {}, repeated=words)
            except ConfigError as error:
                self._read[key] = error.what
        return self._read[key]


def differing(runs: Profile, wished: Profile, root: str) -> Iterator[tuple[str, list[Any]]]:
    """Each dotted key with both values. A path into another checkout of the project is the same path."""
    before, after = _flat(runs), _flat(wished)
    for key in dict.fromkeys([*before, *after]):
        was, is_ = before.get(key), after.get(key)
        if was != is_ and not _same_file(was, is_, root):
            yield key, [was, is_]


def _flat(profile: Profile) -> dict[str, Any]:
    leaves = schema.flatten(profile.model_dump(mode="json", exclude={"name", "hosts"}))
    return {".".join(path): value for path, value in leaves if value not in (None, {}, [])}


def _same_file(was: Any, is_: Any, root: str) -> bool:
    if not (isinstance(was, str) and isinstance(is_, str) and is_.startswith(f"{root}/")):
        return False
    return was.startswith("/") and was.endswith(is_[len(root) :])


def shown(drift: Mapping[str, Any] | None) -> str:
    """In few words: the keys alone."""
    if not drift:
        return ""
    if "error" in drift:
        return f"unknown: {drift['error']}"
    keys = list(drift["keys"])
    return ", ".join([*keys[:MOST], *([f"{len(keys) - MOST} more"] if len(keys) > MOST else [])])


def told(drift: Mapping[str, Any]) -> list[str]:
    """A line for each key."""
    return [
        f"{key}: {json.dumps(was)} runs, the profile says {json.dumps(is_)}"
        for key, (was, is_) in drift["keys"].items()
    ]
