from __future__ import annotations

import json
import re
import time

from deploy import asking
from deploy.engines import _chat
from deploy.errors import SmokeFailed
from deploy.plan import Node
from deploy.remote import Remote


def smoke(node: Node, remote: Remote) -> str:
    """Ask the profile's question and look at the answer"""
    wish, started = node.profile.smoke, time.monotonic()
    question = node.engine.chat(node.served_name, wish.ask, wish.max_tokens)
    answer = asking.ask(question, node, remote, timeout=wish.timeout)
    said = _chat.text(answer)
    if not re.search(wish.expect, said):
        raise SmokeFailed(
            f"{remote.host.name}: the answer to {wish.ask!r} does not match {wish.expect!r}",
            evidence=said[:1500] or f"nothing is said in {json.dumps(answer)[:1500]}",
            remedy="it serves, but is it the right model? The pattern is smoke.expect in the profile",
        )
    return f"{_short(said)!r} in {time.monotonic() - started:.1f} s"


def _short(text: str) -> str:
    first = " ".join(text.split())
    return first if len(first) <= 60 else f"{first[:57]}..."
