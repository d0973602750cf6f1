"""One request to a node's server, and its answer as JSON; whatever is not an answer is a SmokeFailed with its words."""

from __future__ import annotations

import json
from typing import Any

from deploy.engines import Question
from deploy.errors import SmokeFailed
from deploy.plan import Node
from deploy.remote import Remote


def ask(question: Question, node: Node, remote: Remote, *, timeout: float) -> dict[str, Any]:
    """POST the question; `timeout` seconds for the whole exchange."""
    try:
        reply = remote.http(
            "POST", node.port, question.path, dict(question.body), timeout=timeout, key=remote.place.key
        )
    except OSError as error:
        raise SmokeFailed(
            f"{remote.host.name}: no answer from port {node.port}",
            evidence=f"POST {question.path}: {error or type(error).__name__}",
            remedy="deploy status says what runs; deploy logs shows the server's own words",
        ) from error
    words = reply.body.decode(errors="replace")
    if reply.status != 200:
        raise SmokeFailed(f"{remote.host.name}: POST {question.path} answers {reply.status}", evidence=words[:1500])
    try:
        answer = json.loads(words)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise SmokeFailed(f"{remote.host.name}: POST {question.path} answers no JSON object", evidence=words[:1500])
    return answer
