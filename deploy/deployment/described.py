"""What is written down of a run before it serves: its manifest, and the links that make it the current one."""

from __future__ import annotations

import getpass
import json
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict

from deploy import __version__
from deploy.deployment.state import Place
from deploy.plan import Node
from deploy.remote import Remote


def manifest(node: Node, remote: Remote, fingerprints: Mapping[str, str]) -> str:
    """The whole wish, and what came of it; enough to take this run up again without the profile."""
    draft = remote.sh('readlink -- "$1/draft"', remote.place.folder, ok=(0, 1)).strip()
    told = {
        "run": remote.place.run,
        "tool": __version__,
        "wished": node.digest,
        "served_draft": draft.rpartition("/")[2] or None,
        **asdict(remote.place.asked),
        "model": {key: remote.place.model.get(key) for key in ("identity", "size")},
        "engine_version": remote.place.engine and remote.place.engine.installed,
        "source": remote.place.source and remote.place.source.id,
        "secrets": dict(fingerprints),
        "by": f"{getpass.getuser()}@{socket.gethostname()}",
        "at": time.time(),
        "node": node.to_json(),
    }
    return json.dumps(told, indent=1)


def switch(place: Place) -> list[tuple[str, str]]:
    """(target, link) each: `current` becomes this run; `previous` the one before, if that one had passed its gates."""
    current, folder = place.current, place.deployment_folder
    before = current and current.good and current.id != place.run and current
    links = [(f"runs/{before.id}", f"{folder}/previous")] if before else []
    return [*links, (f"runs/{place.run}", f"{folder}/current")]
