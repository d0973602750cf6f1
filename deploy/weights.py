"""The checksums of a loaded draft, as the server itself tells them: after a start, and after an exchange."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from deploy.plan import Node
from deploy.remote import LONG, Remote

NAME = "weights.json"  # in a run's folder: what `deploy/host/swap.py` answered


def expected(node: Node, remote: Remote) -> Mapping[str, str] | None:
    """Those of this draft after a start of this server on this host; None where it has never been started with it."""
    text = remote.run("cat", "--", _path(node, remote), ok=(0, 1), limit=LONG)
    found: Mapping[str, str] | None = json.loads(text)["checksums"] if text else None
    return found


def remember(checksums: Mapping[str, str], node: Node, remote: Remote) -> None:
    """Keep what was told after a start."""
    folder, _, name = _path(node, remote).rpartition("/")
    remote.change('mkdir -p -- "$1"', folder)
    remote.write(folder, {name: json.dumps({"run": remote.place.run, "checksums": dict(checksums)}, indent=1)})


def _path(node: Node, remote: Remote) -> str:
    """By everything that what is loaded depends on: the server, its draft, the target, the engine."""
    place = remote.place
    engine = place.engine.installed if place.engine else None
    told = json.dumps([node.digest, place.model.get("identity"), engine])
    return f"{place.deployment_folder}/weights/{hashlib.sha256(told.encode()).hexdigest()[:16]}.json"
