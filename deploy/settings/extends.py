"""A profile's file, the one that it extends, and so on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deploy.config import documents
from deploy.errors import ConfigError
from deploy.profile import Profile
from deploy.project import Project, builtin, owner


def chain(name: str, project: Project) -> Iterator[tuple[int, documents.Document, Path]]:
    """The profile's document, the one it extends, and so on, with the folder of each one's relative paths."""
    seen: list[Path] = []
    file = project.profile(name)
    while True:
        document = documents.load(file, Profile, project.shown(file))
        seen.append(file)
        base = document.tree.get("extends")
        yield len(seen) - 1, document, owner(file)
        if base is None:
            return
        file = _base(base, file, document, project)
        if file in seen:
            way = " -> ".join(known.stem for known in [*seen, file])
            raise ConfigError(f"{document.where(('extends',))}: extends goes in a circle: {way}")


def _base(name: Any, file: Path, document: documents.Document, project: Project) -> Path:
    where = document.where(("extends",))
    if not isinstance(name, str):
        raise ConfigError(f"{where}: extends: should be the name of one profile")
    # a project's own `local` may extend the one that it hides
    hidden = name == file.stem and owner(file) != builtin()
    try:
        return (Project(builtin()) if hidden else project).profile(name)
    except ConfigError as error:
        raise ConfigError(f"{where}: extends: {error.what}", remedy=error.remedy) from error


def body(document: documents.Document) -> dict[str, Any]:
    """What the document says of the profile itself; its name can only be the file's."""
    kept = {key: value for key, value in document.tree.items() if key not in ("extends", "name")}
    name, stem = document.tree.get("name"), Path(document.source).stem
    if name not in (None, stem):
        raise ConfigError(f"{document.where(('name',))}: name: is the file's, {stem}", remedy="leave it out")
    return kept
