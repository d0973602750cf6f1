from __future__ import annotations

import json
import time

from deploy import hooks
from deploy.ownership import leftovers
from deploy.plan import Node
from deploy.remote import Remote
from deploy.server import death


def ready(node: Node, remote: Remote) -> str:
    """Look once more that it lives, and run the profile's hooks that announce it"""
    _lives(node, remote)  # what has died since it was measured is neither announced nor told as done
    if node.rank:  # the gates were the head's; each host must know by itself what it can go back to
        verdict = {"run": remote.place.run, "holds": True, "at": time.time()}
        remote.write(remote.place.folder, {"verdict.json": json.dumps(verdict, indent=1)})
    leftovers.remember(remote)
    outcome = hooks.run("ready", node, remote)
    if node.profile.hooks.ready:
        _lives(node, remote)
    return outcome


def _lives(node: Node, remote: Remote) -> None:
    if dead := death.look(node, remote):
        raise dead
