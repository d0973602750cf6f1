"""`deploy plan`: the plan as a document, and as text."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from deploy.checks import flags
from deploy.deployment import compare, drafts
from deploy.deployment.state import Place
from deploy.errors import ConfigError
from deploy.findings import Finding
from deploy.plan import Node, Plan
from deploy.text.legible import clean
from deploy.walk import filing
from deploy.walk.recipe import REPLACE, VERIFY, taken
from deploy.walk.session import Session
from deploy.wish import Wish


def document(wish: Wish, session: Session, *, offline: bool) -> dict[str, Any]:
    """Everything that `up` would do, and what differs from what runs now (unless `offline`)."""
    failed = {} if offline else session.ask(wish.hosts)
    host, _ = drafts.split(wish.profile.draft.path, wish.inventory) if wish.profile.draft else ("", "")
    if host in failed:  # its draft is what the plan is made of
        raise failed[host]
    if host and offline:
        raise ConfigError("a draft that lies on a host cannot be planned offline", remedy="leave --offline out")
    with drafts.found(wish.profile, wish.inventory, session.remotes) as draft:
        plan = wish.plan(draft)
        with ThreadPoolExecutor(thread_name_prefix="plan") as pool:  # an engine is asked for its flags, on each host
            nodes = list(pool.map(lambda node: _node(node, session, failed), plan.nodes))
    verify = all(node["now"].get("mode") == "verify" for node in nodes)
    return {
        "deployment": plan.deployment,
        "steps": [[s.name, s.scope, s.line] for s in taken(VERIFY if verify else REPLACE, plan.replicas)],
        "nodes": nodes,
        "plan": _replicas(plan),
    }


def _replicas(plan: Plan) -> list[list[str]]:
    return [[node.host.name for node in replica.nodes] for replica in plan.replicas]


def _node(node: Node, session: Session, failed: dict[str, Any]) -> dict[str, Any]:
    now = _now(node, session, failed)
    return {
        "host": node.host.name,
        "rank": node.rank,
        "digest": node.digest,
        "argv": [str(word) for word in node.argv],
        "env": dict(node.env),
        "secrets": dict(node.profile.secrets),
        "secrets not here": [name for name in node.profile.secrets if name not in os.environ],
        "files": sorted(name for name, _ in node.files),
        "draft": node.draft
        and {"from": node.draft.source, "release": node.draft.digest, "bytes": node.draft.manifest.size},
        "launch.sh": node.launch_script,
        "env file": filing.environment(node),
        "flags": [asdict(one) for one in _flags(node, session) if one.verdict != "PASS"] if _new(now) else [],
        "now": now,
    }


def _new(now: Mapping[str, str]) -> bool:
    """Whether a server would be started."""
    return now["mode"] not in ("verify", "unknown")


def _flags(node: Node, session: Session) -> Iterator[Finding]:
    name = node.host.name
    return flags.found(node, session.remotes[name], session.machines[name].work)


def _now(node: Node, session: Session, failed: dict[str, Any]) -> dict[str, Any]:
    name = node.host.name
    if name in failed:
        return {"mode": "unknown", "why": failed[name].what}
    if name not in session.remotes:
        return {"mode": "unknown", "why": "not asked (--offline)"}
    model = compare.model_identity(node, session.remotes[name])
    decision = compare.decide([(node, Place(session.machines[name], node.deployment, "", model))])
    return {"mode": decision.mode, "why": decision.why}


def text(document: dict[str, Any]) -> str:
    """For people."""
    return "\n".join(_lines(document))


def _lines(document: dict[str, Any]) -> Iterator[str]:
    replicas, hosts = len(document["plan"]), len(document["nodes"])
    counted = f"{replicas} replica{'s' * (replicas != 1)} on {hosts} host{'s' * (hosts != 1)}"
    yield f"{document['deployment']}: {counted}"
    yield ""
    width = max(len(name) for name, _, _ in document["steps"])
    for name, scope, line in document["steps"]:
        yield f"  {name:<{width}}  {'each host' if scope == 'each' else 'head':<9}  {line}"
    for node in document["nodes"]:
        yield ""
        yield f"{node['host']}: {node['now']['mode']}: {node['now']['why']}"
        if node["draft"]:
            draft = node["draft"]
            yield f"  draft    {draft['from']} -> releases/{draft['release']}, {draft['bytes']} bytes"
        yield f"  digest   {node['digest']}"
        if node["secrets not here"] and node["now"]["mode"] != "verify":
            yield f"  secrets  not in the environment, without them `up` refuses: {', '.join(node['secrets not here'])}"
        for one in node["flags"]:
            yield f"  flags    {one['verdict']}: {clean('; '.join(filter(None, (one['what'], one['remedy']))))}"
        yield "  env"
        yield from (f"    {line}" for line in node["env file"].splitlines())
        yield "  launch.sh"
        yield from (f"    {line}" for line in node["launch.sh"].splitlines())
