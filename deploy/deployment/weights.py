"""The checksums of a loaded draft, as the server itself tells them: after a start, and after an exchange."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from deploy import host
from deploy.deployment import secret, state
from deploy.deployment.state import Place
from deploy.engines._swap import Swap
from deploy.errors import NotReady
from deploy.plan import Node
from deploy.remote import LONG, Remote

Checksums = Mapping[str, str]  # by parameter, of several ranks by `parameter@rank`

NAME = "weights.json"  # in a run's folder: what was loaded when it began
PATIENCE = 120.0  # seconds for an answer


def offered(node: Node, place: Place) -> Swap:
    """What the server that runs offers for an exchange of its draft: by the version that was launched."""
    launched = (place.current.manifest if place.warm and place.current else None) or {}
    installed = place.engine.installed if place.engine else None
    return node.engine.swap(node.said(launched.get("engine_version", installed)))


def asked(node: Node, remote: Remote) -> dict[str, Any] | None:
    """What our programs on the host need to ask the server about its weights; None where it offers nothing."""
    swap = offered(node, remote.place)
    if swap.api is None:
        return None
    run = remote.place.current if remote.place.warm else None
    keys = secret.keys_of(run or state.reread(remote, remote.place), remote) if node.profile.secrets else []
    return {
        "url": f"http://127.0.0.1:{node.port}",
        "keys": keys,
        "ranks": node.profile.parallel.tp,
        "api": swap.api.to_json(),
        "patience": PATIENCE,
    }


def hold(node: Node, remote: Remote) -> None:
    """Hold what is loaded against what was loaded when the run began, which is written down where it begins now.

    NotReady where it is something else: others may exchange weights as well.
    """
    if node.draft is None or offered(node, remote.place).why or (request := asked(node, remote)) is None:
        return
    stdin = json.dumps(request).encode()
    answer = remote.python(host.source("checksums"), stdin=stdin, timeout=PATIENCE + 30)
    now, place = answer["checksums"], remote.place
    if now is None:
        remote.say(f"which weights of the draft are loaded cannot be told: {answer['why']}")
        return
    known = recorded(place.folder, remote)
    if known is None and remote.lease is None:
        return  # who only looks writes nothing
    if known is None:
        remote.write(place.folder, {NAME: json.dumps({"checksums": now}, indent=1)})
        if not place.warm:
            _remember(now, node, remote)
    elif known != now:
        other = sorted(name for name in {*now, *known} if now.get(name) != known.get(name))
        raise NotReady(
            f"{remote.host.name}: other weights of the draft are loaded than those of run {place.run}",
            evidence=f"{len(other)} of {len(known)} checksums differ: {', '.join(other[:3])}",
            remedy=f"somebody else has exchanged them; deploy restart profile={node.deployment} --cold loads it anew",
        )


def recorded(folder: str, remote: Remote) -> Checksums | None:
    """Those that were loaded when the run in this folder began; None where that is not told."""
    return _read(f"{folder}/{NAME}", remote)


def expected(node: Node, remote: Remote) -> Checksums | None:
    """Those of this draft after a start of this server on this host; None where it was never started with it."""
    return _read(_path(node, remote), remote)


def _remember(checksums: Checksums, node: Node, remote: Remote) -> None:
    folder, _, name = _path(node, remote).rpartition("/")
    remote.change('umask 077; mkdir -p -- "$1"', folder)
    remote.write(folder, {name: json.dumps({"run": remote.place.run, "checksums": dict(checksums)}, indent=1)})


def _read(path: str, remote: Remote) -> Checksums | None:
    text = remote.run("cat", "--", path, ok=(0, 1), limit=LONG)
    try:
        found: Checksums = json.loads(text)["checksums"]
    except (ValueError, KeyError, TypeError):  # not there, or of a client that was cut off
        return None
    return found


def _path(node: Node, remote: Remote) -> str:
    """By everything that what is loaded depends on: the server with its draft, the target, the engine."""
    place = remote.place
    engine = place.engine.installed if place.engine else None
    told = json.dumps([node.digest, place.model.get("identity"), engine])
    return f"{place.deployment_folder}/weights/{hashlib.sha256(told.encode()).hexdigest()[:16]}.json"
