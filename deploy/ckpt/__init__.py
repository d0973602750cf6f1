"""What `deploy ckpt` does, one command a file, and where a checkpoint lies: here, or on a host of the inventory."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deploy import registry
from deploy.checkpoint import facts as files
from deploy.checkpoint.facts import Facts
from deploy.errors import ConfigError
from deploy.host import outline as outlines
from deploy.options import Options
from deploy.text.legible import one_line

if TYPE_CHECKING:
    from deploy.remote import Remote


@dataclass(frozen=True)
class Where:
    """A checkpoint's place: a path on this machine, or on a host that is reached."""

    path: str
    remote: Remote | None = None

    def facts(self, **ask: Any) -> Facts:
        """What its files say; `ask` as in `checkpoint.facts.read`. ConfigError where there is nothing."""
        if self.remote is None:
            return files.read(Path(self.path), **ask)
        from deploy.deployment import drafts

        return drafts.facts(self.path, self.remote, **ask)

    def outline(self) -> dict[str, Any]:
        """What tensors it has, folded, by `deploy/host/outline.py`. ConfigError where there is nothing."""
        if self.remote is None:
            return files.found(outlines.outline(self.path))
        from deploy.deployment import drafts

        return drafts.outline(self.path, self.remote)


@contextmanager
def opened(paths: Sequence[str], options: Options, command: str, *, locked: bool = False) -> Iterator[list[Where]]:
    """The places of `PATH` and `host:path` words, their hosts reached, and locked if something will be changed there.

    Where every path lies here no host is asked, no inventory is needed, and what would ask is not even imported: that
    would take as long as to look at a draft.
    """
    if not all(paths):
        raise ConfigError("a path is empty", remedy="name a folder, a .safetensors or a .gguf file, or one on a host")
    if not any(":" in path for path in paths):
        yield [Where(path) for path in paths]
        return
    from deploy import inventory
    from deploy.deployment import drafts
    from deploy.project import home
    from deploy.walk.session import Session

    known = inventory.load(home(options).inventory)
    split = [drafts.split(path, known) for path in paths]
    for path, (name, rest) in zip(paths, split, strict=True):
        _meant(path, name, rest, sorted(known.hosts))
    hosts = {name: known.host(name) for name, _ in split if name}
    with Session(options.command("ckpt", command, *paths)) as session:
        if hosts:
            session.open(hosts.values(), locked=locked)
        yield [Where(path, session.remotes[name] if name else None) for name, path in split]


def _meant(path: str, host: str, rest: str, known: list[str]) -> None:
    """ConfigError where a host is meant that nobody knows, or nothing on it."""
    if host and not rest:
        raise ConfigError(f"{path} names nothing on {host}", remedy=f"write it as {host}:/data/draft")
    name, colon, _ = path.partition(":")
    if not host and colon and "/" not in name and not os.path.lexists(path):
        told = f"{one_line(path)} does not exist, and the inventory has no host {one_line(name)!r}"
        hosts = registry.nearest(name, known) if known else "it names none"
        raise ConfigError(told, remedy=f"{hosts}; --project names the folder of another inventory")


def document(told: Any) -> str:
    """One JSON document. A config.json may hold NaN, which Python reads and JSON does not have: there it is text."""
    try:
        return json.dumps(told, indent=1, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(told), indent=1)


def _finite(told: Any) -> Any:
    if isinstance(told, Mapping):
        return {key: _finite(value) for key, value in told.items()}
    if isinstance(told, list | tuple):
        return [_finite(value) for value in told]
    return str(told) if isinstance(told, float) and not math.isfinite(told) else told


def options(project: Path | None, *, as_json: bool) -> Options:
    """The shared options of a command that takes paths, not `key=value`."""
    return Options((), project, None, yes=False, output="json" if as_json else "auto", verbosity=0)
