from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from deploy import asking
from deploy.engines import Counters, Totals
from deploy.errors import SmokeFailed, Unreachable
from deploy.measuring import acceptance
from deploy.measuring.acceptance import Acceptance
from deploy.plan import Node
from deploy.remote import Remote

PROMPTS = (  # until there are sets of them
    "Write a short story about a lighthouse keeper who finds a message in a bottle.",
    "Explain how a hash table works, with an example in Python.",
    "List the planets of the solar system with one fact about each.",
)
WARM_UP = 8  # tokens: the first request pays for what is lazily set up
METRICS_TIMEOUT = 5.0  # seconds
SETTLED = 3.0  # seconds in which a server must have counted a request that it has answered
RESTED = 1.0  # seconds without another count, after which nothing that was asked before is still to be counted


@dataclass(frozen=True)
class Answer:
    """One measured request: its counters and its seconds."""

    path: str
    prompt: str
    counters: Counters
    seconds: float


def bench(node: Node, remote: Remote) -> str:
    """Measure acceptance and speed with a few fixed prompts"""
    if not node.profile.bench.prompts:
        why = "no prompts: nothing measured"
        remote.write(remote.place.folder, {"bench.json": json.dumps({"why": why, "at": time.time()})})
        return why
    started = _totals(node, remote)
    form, by_answers = _form(node, remote)
    before = _settled(node, remote, started, 1)
    before = before if by_answers else _rested(node, remote, before)
    answers = list(_answers(node, remote, form))
    counted = acceptance.between(before, _settled(node, remote, before, len(answers)))
    measured = {**_measured(node, answers, counted), "measured_on": _measured_on(node, answers, remote)}
    if cross := _cross_check(counted, answers, measured):
        measured["cross_check"] = cross
    remote.write(remote.place.folder, {"bench.json": json.dumps(measured, indent=1)})
    remote.say("measured", measured=measured)
    return _line(measured)


def _prompts(wished: str | Sequence[str]) -> Sequence[str]:
    return PROMPTS if isinstance(wished, str) else wished


def _answers(node: Node, remote: Remote, form: int) -> Iterator[Answer]:
    """Each prompt once, in the form that this server answers with counters."""
    wish = node.profile.bench
    prompts = _prompts(wish.prompts)
    for number, prompt in enumerate(prompts, 1):
        remote.pause(0)
        remote.say(f"prompt {number} of {len(prompts)}", done=number, total=len(prompts))
        question = node.engine.measured(node.served_name, prompt, wish.max_tokens)[form]
        started = time.monotonic()
        reply = asking.ask(question, node, remote, timeout=wish.timeout)
        counters = node.engine.counters(reply)
        if counters is None:
            raise _uncounted(reply, remote)
        yield Answer(question.path, prompt, counters, time.monotonic() - started)


def _form(node: Node, remote: Remote) -> tuple[int, bool]:
    """Which form of the question is answered with counters, and whether these tell of drafts; asking is the warm-up."""
    wish = node.profile.bench
    for number, question in enumerate(node.engine.measured(node.served_name, _prompts(wish.prompts)[0], WARM_UP)):
        remote.pause(0)
        reply = asking.ask(question, node, remote, timeout=wish.timeout)
        if counters := node.engine.counters(reply):
            return number, counters.steps is not None
    raise _uncounted(reply, remote)


def _uncounted(reply: dict[str, Any], remote: Remote) -> SmokeFailed:
    return SmokeFailed(f"{remote.host.name}: an answer without token counts", evidence=json.dumps(reply)[:1500])


def _measured(node: Node, answers: list[Answer], counted: Totals | None) -> dict[str, Any]:
    seconds = sum(answer.seconds for answer in answers)
    own = [answer.counters for answer in answers]
    told, wrong = _told(own, counted)
    wrong = wrong or acceptance.impossible(told, node.num_steps)
    found: Acceptance | None = None if wrong else acceptance.over(told)
    return {
        "accept_length": round(found.length, 3) if found else None,
        "accepted": found.accepted if found else None,
        "steps": found.steps if found else None,
        "drafted": found.drafted if found else None,
        "why": wrong or (None if found else "the server tells no acceptance"),
        "tokens_per_second": round(sum(answer.counters.generated for answer in answers) / seconds, 1),
        "definition": acceptance.DEFINITION,
        "source": "the answers" if told is own else node.engine.METRICS,
        "at": time.time(),
    }


def _told(own: list[Counters], counted: Totals | None) -> tuple[Sequence[Counters], str]:
    """What is measured by, and why it is not to be trusted: the answers' own counters, or where these say nothing of
    drafts, what the server counted meanwhile, if it counted nobody else.
    """
    if counted is None or counted.requests is None or all(one.steps is not None for one in own):
        return own, ""
    return [counted], acceptance.strangers(counted, own)


def _measured_on(node: Node, answers: list[Answer], remote: Remote) -> dict[str, Any]:
    """Without this a number is hearsay: which run, which draft, which model, which requests."""
    return {
        "host": remote.host.name,
        "run": remote.place.run,
        "digest": node.digest,
        "draft": node.draft.digest if node.draft else None,
        "model": node.profile.model.path,
        "engine": node.profile.engine.name,
        "concurrency": 1,
        "temperature": 0,
        "max_tokens": node.profile.bench.max_tokens,
        "requests": [
            {"path": a.path, "prompt": a.prompt, "seconds": round(a.seconds, 4), **asdict(a.counters)} for a in answers
        ],
    }


def _settled(node: Node, remote: Remote, since: Totals | None, requests: int) -> Totals | None:
    """Once it has counted that many requests more: an answer may arrive before its last step is counted."""
    deadline, now = time.monotonic() + SETTLED, None
    while since is not None:
        now = _totals(node, remote)
        more = acceptance.between(since, now)
        if more is None or more.requests is None or more.requests >= requests or time.monotonic() > deadline:
            break
        remote.pause(0.05)
    return now


def _rested(node: Node, remote: Remote, now: Totals | None) -> Totals | None:
    """Once it counts no more: `wait` and `smoke` have asked as well, and what they asked is none of the measurement."""
    began = since = time.monotonic()
    while now is not None and time.monotonic() - since < RESTED and time.monotonic() - began < SETTLED:
        remote.pause(0.1)
        last, now = now, _totals(node, remote)
        since = since if now == last else time.monotonic()
    return now


def _totals(node: Node, remote: Remote) -> Totals | None:
    """Whatever is wrong with them is no reason to fail: what cannot be told then is not told."""
    if node.engine.METRICS is None:
        return None
    try:
        reply = remote.http("GET", node.port, node.engine.METRICS, timeout=METRICS_TIMEOUT, key=remote.place.key)
    except (OSError, Unreachable):
        return None
    return node.engine.totals(reply.body.decode(errors="replace")) if reply.status == 200 else None


def _cross_check(counted: Totals | None, answers: list[Answer], measured: dict[str, Any]) -> dict[str, Any] | None:
    """The server's own count of the same time, where the answers are what is measured by.

    None where others are known to have asked, too.

    Where steps are told by what was generated, a request's first token, which comes from the prompt's own pass, may
    have been counted as one. Within that it agrees.
    """
    if counted is None or counted.steps is None or counted.accepted is None or measured["source"] != "the answers":
        return None
    if counted.requests is not None and acceptance.strangers(counted, [answer.counters for answer in answers]):
        return None
    length = 1 + counted.accepted / counted.steps if counted.steps else None
    own, agrees = measured["accept_length"], False
    if own is not None and length is not None:
        most = 1 + measured["accepted"] / max(1, measured["steps"] - len(answers))
        agrees = 0.95 * own <= length <= 1.05 * most
    return {"source": "/metrics", "accept_length": length and round(length, 3), "agrees": agrees}


def _line(measured: dict[str, Any]) -> str:
    speed = f"{measured['tokens_per_second']} tokens/s, one stream"
    length = measured["accept_length"]
    if length is None:
        return f"{speed}; accept length not measured: {measured['why']}"
    line = f"accept length {length:.2f} ({measured['accepted']} drafts kept in {measured['steps']} steps), {speed}"
    cross = measured.get("cross_check")
    return line if cross is None or cross["agrees"] else f"{line}; but /metrics says {cross['accept_length']}"
