from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from deploy import acceptance, asking
from deploy.acceptance import Acceptance
from deploy.engines import Counters
from deploy.errors import SmokeFailed
from deploy.plan import Node
from deploy.remote import Remote


@dataclass(frozen=True)
class Answer:
    """One measured request: its counters and its seconds."""

    prompt: str
    counters: Counters
    seconds: float


def bench(node: Node, remote: Remote) -> str:
    """Measure acceptance and speed with a few fixed prompts"""
    if not node.profile.bench.prompts:
        return "no prompts: nothing measured"
    before = _totals(node, remote)
    answers = list(_answers(node, remote))
    measured = _measured(node, answers)
    if cross := _cross_check(before, _totals(node, remote), measured):
        measured["cross_check"] = cross
    remote.write(f"{remote.place.folder}/bench.json", json.dumps(measured, indent=1))
    remote.say("measured", measured=measured)
    return _line(measured)


def _answers(node: Node, remote: Remote) -> Iterator[Answer]:
    """Each prompt once; the first is asked twice, since the first request pays for what is lazily set up."""
    wish = node.profile.bench
    asking.ask(node.engine.measured(node.served_name, wish.prompts[0], 8), node, remote, timeout=wish.timeout)
    for number, prompt in enumerate(wish.prompts, 1):
        remote.say(f"prompt {number} of {len(wish.prompts)}", done=number, total=len(wish.prompts))
        question = node.engine.measured(node.served_name, prompt, wish.max_tokens)
        started = time.monotonic()
        reply = asking.ask(question, node, remote, timeout=wish.timeout)
        counters = node.engine.counters(reply)
        if counters is None:
            raise SmokeFailed(f"{remote.host.name}: an answer without token counts", evidence=json.dumps(reply)[:1500])
        yield Answer(prompt, counters, time.monotonic() - started)


def _measured(node: Node, answers: list[Answer]) -> dict[str, Any]:
    seconds = sum(answer.seconds for answer in answers)
    found: Acceptance | None = acceptance.over(answer.counters for answer in answers)
    return {
        "accept_length": round(found.length, 3) if found else None,
        "accepted": found.accepted if found else None,
        "steps": found.steps if found else None,
        "drafted": found.drafted if found else None,
        "tokens_per_second": round(sum(answer.counters.generated for answer in answers) / seconds, 1),
        "definition": acceptance.DEFINITION,
        "measured_on": {
            "draft": node.draft.digest if node.draft else None,
            "digest": node.digest,
            "max_tokens": node.profile.bench.max_tokens,
            "concurrency": 1,
            "prompts": [{"prompt": a.prompt, "seconds": round(a.seconds, 4), **asdict(a.counters)} for a in answers],
        },
        "at": time.time(),
    }


def _totals(node: Node, remote: Remote) -> Counters | None:
    reply = remote.http("GET", node.port, "/metrics", key=remote.place.key)
    return node.engine.totals(reply.body.decode(errors="replace")) if reply.status == 200 else None


def _cross_check(before: Counters | None, after: Counters | None, measured: dict[str, Any]) -> dict[str, Any] | None:
    """The server's own count of the same time. It has the warm-up request too, so a little more is agreement."""
    if before is None or after is None or None in (before.accepted, after.accepted, before.steps, after.steps):
        return None
    steps, accepted = (after.steps or 0) - (before.steps or 0), (after.accepted or 0) - (before.accepted or 0)
    length = 1 + accepted / steps if steps else None
    own = measured["accept_length"]
    return {
        "source": "/metrics",
        "accept_length": length and round(length, 3),
        "agrees": own is not None and length is not None and abs(own - length) <= 0.05 * own,
    }


def _line(measured: dict[str, Any]) -> str:
    speed = f"{measured['tokens_per_second']} tokens/s, one stream"
    length = measured["accept_length"]
    if length is None:
        return f"{speed}; the server tells no acceptance"
    line = f"accept length {length:.2f} ({measured['accepted']} drafts kept in {measured['steps']} steps), {speed}"
    cross = measured.get("cross_check")
    return line if cross is None or cross["agrees"] else f"{line}; but /metrics says {cross['accept_length']}"
