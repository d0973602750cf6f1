"""Our own client, `host/load.py`: it keeps the time of each chunk beside the server, and each answer's counters."""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from deploy.engines import Conversation, Counters, Streamed
from deploy.facts import gpus
from deploy.loads import Progress, Ran, Round, _arrivals, _chat_ids, _program, _version
from deploy.measuring.prompts import Prompt
from deploy.measuring.sample import Sample
from deploy.ownership import visible
from deploy.plan import Node
from deploy.remote import Remote

COUNTS = True
UNSHOWN = ("messages", "text", "input_ids", "cache_salt")  # of each question its own


def run(wanted: Round, node: Node, remote: Remote, progress: Progress) -> Ran:
    """One round, each answer as a stream. The API key goes by stdin."""
    questions, note = _questions(wanted, node, remote)
    asked = {
        "port": node.port,
        "key": remote.place.key,
        "concurrency": wanted.concurrency,
        "timeout": wanted.timeout,
        "requests": [{"path": one.path, "body": one.body, "tokens": list(one.tokens)} for one in questions],
        "gpus": _gpus(node, remote),
    }
    total = len(questions)
    deadline = math.ceil(total / wanted.concurrency) * wanted.timeout
    told = _program.run("load", asked, remote, deadline=deadline, told=lambda done: progress(done, total))
    answers = zip(told["requests"], wanted.prompts, questions, strict=True)
    samples = [sample(one, prompt, wanted, _counters(one, question, node)) for one, prompt, question in answers]
    return Ran(
        samples=tuple(samples),
        seconds=told["seconds"],
        command=_command(questions, wanted, node) + note,
        clock_jump=told["clock_jump"],
        client_busy=told["client_busy"],
        watts=told["watts"],
        gpu_bytes=told["gpu_bytes"],
    )


def _questions(wanted: Round, node: Node, remote: Remote) -> tuple[list[Streamed], str]:
    """One for each prompt, and what is to be known of them.

    Salted: whatever the server keeps of a prompt, a round that asks it again takes as long as the first.
    """
    version, note, salt = _version.of(node, remote), "", secrets.token_hex(8)
    ids: Sequence[tuple[int, ...] | None] = [None] * len(wanted.prompts)
    if node.engine.wants_ids(version):
        ids = _chat_ids.of(wanted.prompts, node, remote) or ids
        note = " (as plain text: the model has no chat template)" if ids[0] is None else ""
    ranks = node.profile.parallel.dp
    questions = [
        node.engine.streamed(
            Conversation(
                model=node.served_name,
                messages=prompt.messages,
                max_tokens=wanted.max_tokens,
                fixed_length=wanted.fixed_length,
                temperature=wanted.temperature,
                seed=wanted.seed,
                version=version,
                ids=tokens,
                rank=number % ranks if ranks > 1 else None,
                salt=f"{salt}-{number}",
            )
        )
        for number, (prompt, tokens) in enumerate(zip(wanted.prompts, ids, strict=True))
    ]
    return questions, note


def _gpus(node: Node, remote: Remote) -> list[str]:
    """The UUIDs of the GPUs that the node takes, where that can be told."""
    found = gpus.read(remote).all if node.gpus else None
    return [one.uuid for one in visible.of(node, found).gpus] if found else []


def _counters(told: dict[str, Any], question: Streamed, node: Node) -> Counters | None:
    """Of an answer; the rank that it was sent to, where the answer does not say it."""
    found = node.engine.counters(told["told"])
    asked = question.body.get("routed_dp_rank")
    return replace(found, rank=asked) if found and found.rank is None and asked is not None else found


def _command(questions: Sequence[Streamed], wanted: Round, node: Node) -> str:
    """What a stranger would need to ask the same; the prompts are recorded beside it."""
    body = {name: value for name, value in questions[0].body.items() if name not in UNSHOWN}
    return (
        f"{len(questions)} times POST http://127.0.0.1:{node.port}{questions[0].path} {json.dumps(body)} "
        f"from the host itself, {wanted.concurrency} at once"
    )


def sample(told: dict[str, Any], prompt: Prompt, wanted: Round, counters: Counters | None) -> Sample:
    """From what the client told of one request, and the counters of its answer."""
    first, first_tokens, chunks, counted_by = _arrivals.of(told["chunks"], counters)
    return Sample(
        prompt=prompt.name,
        kind=prompt.kind,
        concurrency=wanted.concurrency,
        round=wanted.number,
        started=told["started"],
        seconds=told["ended"] if first is None else first + sum(gap for gap, _ in chunks),  # what ends it is no token
        first=first,
        first_tokens=first_tokens,
        chunks=chunks,
        counters=counters,
        finish=told["finish"],
        text=told["text"],
        error=told["error"],
        tokens_by=counted_by,
    )
