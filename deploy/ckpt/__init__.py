"""What `deploy ckpt` does, one command a file, and where a checkpoint lies: here, or on a host of the inventory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy import drafts, inventory
from deploy.checkpoint.facts import Facts
from deploy.options import Options
from deploy.remote import Remote
from deploy.session import Session
from deploy.wish import home


@dataclass(frozen=True)
class Where:
    """A checkpoint's place: a path on this machine, or on a host that is reached."""

    path: str
    remote: Remote | None = None

    def facts(self, **ask: Any) -> Facts:
        """What its files say; `ask` as in `checkpoint.facts.read`. ConfigError where there is nothing."""
        return drafts.facts(self.path, self.remote, **ask)

    def outline(self) -> dict[str, Any]:
        """What tensors it has, folded, by `deploy/host/outline.py`. ConfigError where there is nothing."""
        return drafts.outline(self.path, self.remote)


@contextmanager
def opened(paths: Sequence[str], options: Options, command: str, *, locked: bool = False) -> Iterator[list[Where]]:
    """The places of `PATH` and `host:path` words, their hosts reached, and locked if something will be changed there.

    No host is asked where every path lies here; then no inventory is needed either.
    """
    known = inventory.load(home(options).inventory) if any(":" in path for path in paths) else None
    split = [drafts.split(path, known) if known else ("", path) for path in paths]
    hosts = {name: known.host(name) for name, _ in split if name and known}
    with Session(options.command("ckpt", command, *paths)) as session:
        if hosts:
            session.open(hosts.values(), locked=locked)
        yield [Where(path, session.remotes[name] if name else None) for name, path in split]


def options(project: Path | None, *, as_json: bool) -> Options:
    """The shared options of a command that takes paths, not `key=value`."""
    return Options((), project, None, yes=False, output="json" if as_json else "auto", verbosity=0)
