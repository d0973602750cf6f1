from __future__ import annotations

from dataclasses import asdict
from typing import Any

from deploy.deployment import state, weights
from deploy.deployment.state import Run
from deploy.engines import Loaded
from deploy.errors import NotReady
from deploy.findings import Finding
from deploy.plan import Node
from deploy.remote import Remote
from deploy.server import asking, identity
from deploy.server.identity import Serving
from deploy.text import scrub


def health(node: Node, remote: Remote) -> str:
    """Prove that what answers is what was launched"""
    current = remote.place.current
    if remote.place.adopted and current and current.torn:
        raise _torn(node, remote, current)
    before = identity.look(node, remote)
    if node.rank:  # nobody asks it anything; what it is, its processes show
        _tell(remote, before.findings, before)
        return f"launched as pid {_pids(before)}"
    names = _models(node, remote)
    if node.served_name not in names:
        raise NotReady(
            f"{remote.host.name}: it serves {', '.join(names) or 'nothing'}, not {node.served_name}",
            remedy="is model.name in the profile the served name?",
        )
    loaded = _loaded(node, remote)
    wished = _wished(node, remote, loaded)
    after = identity.look(node, remote, [(path, told) for _, path, told in wished])
    if [(p.pid, p.start_ticks) for p in before.processes] != [(p.pid, p.start_ticks) for p in after.processes]:
        raise NotReady(
            f"{remote.host.name}: another process answers on port {node.port} than a moment ago",
            evidence=f"pid {_pids(before)}, then {_pids(after)}",
            remedy="does something restart it? deploy logs",
        )
    weights.hold(node, remote)
    findings = [*after.findings, *_checkpoints(node, remote, wished, after.paths)]
    _tell(remote, findings, after, served=node.served_name, loaded=asdict(loaded) if loaded else None)
    return f"serves {node.served_name}, by pid {_pids(after)}"


def _torn(node: Node, remote: Remote, current: Run) -> NotReady:
    """Of a server that is paused: who holds no lock may meet an exchange that somebody else is at, and all is well."""
    what, busy = f"{remote.host.name}: run {current.id}", remote.place.machine.busy
    if remote.lease is None and busy:
        return NotReady(f"{what}: {state.SWAPPING}: {busy}", remedy="deploy status says when it serves again")
    return NotReady(f"{what}: {state.TORN}", remedy=f"deploy restart profile={node.deployment}")


def _pids(serving: Serving) -> str:
    return ", ".join(str(process.pid) for process in serving.processes) or "that cannot be seen"


def _tell(remote: Remote, findings: list[Finding] | tuple[Finding, ...], serving: Serving, **facts: Any) -> None:
    """What is to be known of it, and for the record who serves."""
    for finding in findings:
        remote.emit("finding", finding.what, **asdict(finding), waived=False)
    owners = [
        {"pid": p.pid, "start_ticks": p.start_ticks, "cmdline": scrub.words(p.cmdline)} for p in serving.processes
    ]
    remote.say("identity", identity={"run": remote.place.run, "processes": owners, **facts})


def _wished(node: Node, remote: Remote, loaded: Loaded | None) -> list[tuple[str, str, str | None]]:
    """(what it is, its path on the host, the one that the server tells or None); none where its engine tells none."""
    if loaded is None:
        return []
    path = node.profile.model.path
    model = f"{remote.place.machine.home}{path[1:]}" if path.startswith("~/") else path
    wished = [("model", model, loaded.model)]
    if node.draft:
        wished.append(("draft", f"{remote.place.server}/{node.draft.served}", loaded.draft))
    return wished


def _checkpoints(
    node: Node, remote: Remote, wished: list[tuple[str, str, str | None]], same: tuple[bool, ...]
) -> list[Finding]:
    """NotReady where it tells of another checkpoint; a finding where it tells of none, or of a hub's name."""
    findings = []
    for (which, path, told), right in zip(wished, same, strict=True):
        if right:
            continue
        if told is None:
            what = f"neither its answers nor its command line name the {which} {path}"
            findings.append(Finding("health", "WARN", what))
        elif not path.startswith("/") and told.startswith("/"):  # a hub's name; some servers tell their cache's folder
            findings.append(Finding("health", "WARN", f"it serves the {which} {told}; that it is {path} is not proven"))
        else:
            raise NotReady(
                f"{remote.host.name}: it serves another {which} than was launched",
                evidence=f"wished: {path}\nserved: {told}",
                remedy=f"does a wrapper or a --config file exchange it? deploy restart profile={node.deployment}",
            )
    return findings


def _loaded(node: Node, remote: Remote) -> Loaded | None:
    """Which checkpoints it says it has loaded; None where its engine has no way to say so.

    SGLang asks its schedulers before it answers: where these are dead, it does not.
    """
    if not node.engine.INFO:
        return None
    for path in node.engine.INFO:
        reply = asking.get(path, node, remote, timeout=node.profile.smoke.timeout)
        if reply.status == 200:
            return node.engine.loaded(asking.parsed(reply.body.decode(errors="replace")) or {})
        if reply.status not in (404, 405):
            raise asking.refused(f"{remote.host.name}: GET {path}", reply.status, reply.body, NotReady)
    return Loaded()


def _models(node: Node, remote: Remote) -> list[str]:
    path = "/v1/models"
    reply = asking.get(path, node, remote, timeout=node.profile.smoke.timeout)
    if reply.status != 200:
        raise asking.refused(f"{remote.host.name}: GET {path}", reply.status, reply.body, NotReady)
    words = reply.body.decode(errors="replace")
    entries = (asking.parsed(words) or {}).get("data")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise NotReady(f"{remote.host.name}: {path} answers no list of models", evidence=words[:500])
    return [str(entry.get("id")) for entry in entries]
