"""Whether what runs is what its profile says today: which keys differ, in the project at hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from deploy import settings
from deploy.config import schema
from deploy.deployment.state import Run
from deploy.errors import ConfigError
from deploy.plan import Node
from deploy.profile import Profile
from deploy.project import Project
from deploy.settings import Settings
from deploy.text import scrub

MOST = 3  # keys that a cell names


class Drift:
    """Compares runs with the profiles of one project, each of which is read once."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._read: dict[tuple[str, ...], Settings | str] = {}

    def of(self, run: Run, node: Node) -> dict[str, Any]:
        """{"keys": {key: [what runs, what the profile says]}}, without secrets, or {"error": why that is not known}.

        The words with which it was launched count as said: they are no drift, and a `restart` says them again.
        """
        said = self._settings(run, node)
        if isinstance(said, str):
            return {"error": said}
        try:
            wished = said.profile(said.inventory.hosts.get(node.host.name))
        except ConfigError as error:
            return {"error": scrub.text(error.what)}
        found = differing(node.profile, wished, str(self._project.root))
        return {"keys": {key: [_shown(key, value) for value in pair] for key, pair in found}}

    def _settings(self, run: Run, node: Node) -> Settings | str:
        words = (run.manifest or {}).get("words") or []
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            return "its manifest does not tell the words of its launch"
        key = (node.deployment, *words)
        if key not in self._read:
            try:
                self._read[key] = settings.load(node.deployment, (), self._project, {}, repeated=words)
            except ConfigError as error:
                self._read[key] = scrub.text(error.what)
        return self._read[key]


def differing(runs: Profile, wished: Profile, root: str) -> Iterator[tuple[str, list[Any]]]:
    """Each dotted key with both values. A path into another checkout of the project is the same path."""
    before, after = _flat(runs), _flat(wished)
    for key in dict.fromkeys([*before, *after]):
        was, is_ = before.get(key), after.get(key)
        if was != is_ and not _same_file(was, is_, root):
            yield key, [was, is_]


def _shown(key: str, value: Any) -> Any:
    """A value without what is a secret by its own name, or by one within it."""
    if isinstance(value, list):
        plain = all(isinstance(one, str) for one in value)
        return scrub.words(value) if plain else [_shown(key, one) for one in value]
    if isinstance(value, dict):
        return {name: _shown(name, one) for name, one in value.items()}
    if value is not None and scrub.is_secret(key):
        return scrub.HIDDEN
    return scrub.text(scrub.words([value])[0]) if isinstance(value, str) else value


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
