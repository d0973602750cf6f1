from __future__ import annotations

from deploy import checks
from deploy.plan import Node
from deploy.remote import Remote
from deploy.steps._refusing import refuse


def agree(node: Node, remote: Remote) -> str:
    """Compare the replica's hosts with each other"""
    found = [finding for _, finding in checks.across(list(remote.cases.values()))]
    refuse(found, node, remote, "nothing was touched")
    return f"{len(remote.cases)} hosts, {len(found)} differences" if found else f"{len(remote.cases)} hosts are alike"
