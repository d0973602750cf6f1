from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from deploy import host, swapping
from deploy.deployment import described, state, weights
from deploy.deployment.releases import LINK
from deploy.deployment.state import Run
from deploy.errors import Locked, NotSwapped, RemoteFailed
from deploy.plan import Node
from deploy.remote import Remote
from deploy.server import death
from deploy.steps import recall

# What tells of a process lies where it was launched; another run of it has links there.
TELLING = (
    "pid",
    "exit",
    "stopped",
    "server.log",
    "server.log.1",
    "server.log.cut",
    "logcap.log",
    "phases.json",
    "shared.json",
)
SHARE = 'cd -- "$1" || exit 1; from=$2; shift 2; for name; do ln -sfn -- "$from/$name" "$name" || exit 1; done'
UNSHARE = """\
cd -- "$1" && rm -f -- "$2" || exit 1
shift 2
for name; do [ ! -L "$name" ] || rm -f -- "$name" || exit 1; done
"""
GRACE, GLANCE = 2.0, 0.25  # seconds for one that dies of it to end, and between two looks
PATIENCE = 120.0  # seconds for what does not grow with the draft
SLOWEST = 20e6  # bytes a second: from a cold disk, through shared memory, and back again if it fails


def swap(node: Node, remote: Remote) -> str:
    """Exchange the draft's weights in the running server"""
    place, current = remote.place, remote.place.current
    if current is None or node.draft is None:
        raise RuntimeError("no draft is served")
    sent = place.sent  # None where hooks have prepared what was compared
    if sent is None:
        sent = swapping.compared(node, remote, f"{place.folder}/{node.draft.served}", remote)
    remote.change(recall.COPY, current.folder, place.folder, *recall.KEPT, *(name for name, _ in node.files))
    secrets = (current.manifest or {}).get("secrets") or {}
    remote.write(place.folder, {"manifest.json": described.manifest(node, remote, secrets)})
    remote.change(SHARE, place.folder, f"../{current.server.rpartition('/')[2]}", *TELLING)
    try:
        answer = _exchanged(node, remote, current, sent)
    except NotSwapped as error:
        if error.torn:  # it may be linked already, and without `pid` nobody would find the paused server by it
            remote.change(LINK, f"runs/{current.id}", f"{place.deployment_folder}/current")
        remote.change(UNSHARE, place.folder, weights.NAME, *TELLING)  # what is launched in this folder has its own
        raise
    launched, told = current.server.rpartition("/")[2], {name: answer.get(name) for name in ("bytes", "seconds", "why")}
    remote.say("", swap={"server": launched, "instead": current.id, **told})
    return f"in the server of run {launched}: {_told(answer)}"


def _exchanged(node: Node, remote: Remote, current: Run, sent: Mapping[str, str]) -> Mapping[str, Any]:
    """What the program on the host did. NotSwapped where another draft than the new one is loaded, or nobody knows."""
    size = sum(file.size for file in node.draft.manifest.files) if node.draft else 0
    request = json.dumps(_request(node, remote, current, sent)).encode()
    try:
        answer: Mapping[str, Any] = remote.change_python(
            host.source("swap"), stdin=request, timeout=PATIENCE + size / SLOWEST
        )
    except RemoteFailed as error:
        return _broken_off(node, remote, current, error)
    name = remote.host.name
    match answer["outcome"]:
        case "swapped":
            return answer
        case "kept":
            raise _kept(name, answer["why"])
        case "lapsed":
            what = f"{name}: our lease lapsed while the draft was exchanged, and somebody else may act on the host now"
            raise Locked(what, evidence=answer["why"], remedy="run the command again")
    raise _torn(node, remote, current, answer["why"])


def _broken_off(node: Node, remote: Remote, current: Run, error: RemoteFailed) -> Mapping[str, Any]:
    """The program gave no answer: what the host says now."""
    place, now = remote.place, state.read(remote).current(remote.place.deployment)
    if now and now.id == place.run and not now.torn:
        return {"outcome": "swapped", "why": f"its answer was lost: {error.what}"}
    if now and now.id == current.id and not now.torn:
        raise _kept(remote.host.name, str(error)) from error
    raise _torn(node, remote, current, str(error)) from error


def _kept(name: str, why: str) -> NotSwapped:
    return NotSwapped(f"{name}: the draft was not exchanged; the old one serves on", evidence=why, remedy=swapping.COLD)


def _torn(node: Node, remote: Remote, current: Run, why: str) -> NotSwapped:
    """With the end of a server that died of it: once it is restarted, its log is not looked at any more."""
    what = "the exchange of the draft broke off: the server is paused, what is loaded is not known"
    dead, deadline = None, time.monotonic() + GRACE
    while not dead and time.monotonic() < deadline:
        run = state.one(remote, current.folder)
        dead = death.of(run, node, remote) if run else None
        if not dead:
            time.sleep(GLANCE)  # no pause: who interrupts is told all the same what it has left
    if dead:
        what = "the server died while its draft was exchanged"
        why = "\n".join(filter(None, (dead.what, why, dead.evidence)))  # the first is seen where the line is cut
    remedy = "run the command again: it restarts the server"
    return NotSwapped(f"{remote.host.name}: {what}", evidence=why, remedy=remedy, torn=True)


def _request(node: Node, remote: Remote, current: Run, sent: Mapping[str, str]) -> dict[str, Any]:
    place, served, lease = remote.place, current.node, remote.lease
    asked = weights.asked(node, remote)
    if asked is None or lease is None or node.draft is None or served is None or served.draft is None:
        raise RuntimeError("nothing may be exchanged")
    return {
        **asked,
        "lock": lease.path,
        "token": lease.token,
        "server": current.server,
        "new": place.run,
        "draft": f"{place.folder}/{node.draft.served}",
        "before": f"{current.folder}/{served.draft.served}",
        "loaded": weights.recorded(current.folder, remote),
        "sent": sent,
        "record": f"{place.folder}/{weights.NAME}",
        "links": described.switch(place),
        "expected": weights.expected(node, remote),
    }


def _told(answer: Mapping[str, Any]) -> str:
    seconds = answer.get("seconds") or {}
    if "paused" not in seconds:
        return str(answer["why"])
    return f"{answer['bytes'] / 1e6:.0f} MB; requests waited {seconds['paused']:.2f} s; {answer['why']}".rstrip("; ")
