"""Our own client, `host/load.py`: it keeps the time of each chunk beside the server, and each answer's counters."""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from typing import Any

from deploy import asking, host, visible
from deploy.engines import Conversation, Counters, Streamed
from deploy.engines._counts import count
from deploy.errors import NoPython, NotReady, RemoteFailed, Unreachable
from deploy.facts import gpus
from deploy.loads import Progress, Ran, Round, _chat_ids
from deploy.measuring.prompts import Prompt
from deploy.measuring.sample import Sample
from deploy.plan import Node
from deploy.remote import Remote

COUNTS = True
SILENT = 60.0  # seconds; the client says every second how far it is
INFO_TIMEOUT = 10.0  # seconds for the server to say its version
UNSHOWN = ("messages", "text", "input_ids", "cache_salt")  # of each question its own
LISTEN = 0.5  # seconds between looks at whether the run is being stopped


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
    told = _told(asked, wanted, remote, progress)
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


def _version(node: Node, remote: Remote) -> str | None:
    """What the server says of itself; None where it says nothing."""
    for path in node.engine.INFO:
        try:
            reply = asking.get(path, node, remote, timeout=INFO_TIMEOUT)
        except NotReady:
            return None
        answer = asking.parsed(reply.body) if reply.status == 200 else None
        if answer is not None:
            return node.engine.loaded(answer).version
    return None


def _questions(wanted: Round, node: Node, remote: Remote) -> tuple[list[Streamed], str]:
    """One for each prompt, and what is to be known of them.

    Salted: whatever the server keeps of a prompt, a round that asks it again takes as long as the first.
    """
    version, note, salt = _version(node, remote), "", secrets.token_hex(8)
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


def _told(asked: dict[str, Any], wanted: Round, remote: Remote, progress: Progress) -> dict[str, Any]:
    """What the client on the host prints last."""
    turns = math.ceil(len(wanted.prompts) / wanted.concurrency)
    deadline = turns * wanted.timeout + SILENT
    with closing(remote.spawn(*remote.interpreter, host.source("load"), deadline=deadline)) as process:
        process.write(json.dumps(asked).encode() + b"\n")
        for line in _lines(process, remote):
            if "requests" in line:
                return line
            progress(line["done"], len(wanted.prompts))
        status, words = process.poll(), process.read_stderr().decode(errors="replace").strip()
    raise NoPython.seen(remote.host.name, status or 0, words) or RemoteFailed(
        f"{remote.host.name}: the load generator ended with status {status}", status=status or 0, evidence=words[-1500:]
    )


def _lines(process: Any, remote: Remote) -> Iterator[dict[str, Any]]:
    """The JSON lines of a program on the host; Interrupted when the run is being stopped."""
    rest, silent = b"", 0.0
    while True:
        remote.pause(0)
        try:
            data = process.read(timeout=LISTEN)
        except TimeoutError:
            silent += LISTEN
            if silent > SILENT:
                raise Unreachable(f"{remote.host.name}: not a sign of life for {SILENT:.0f} s") from None
            continue
        if not data:
            return
        silent = 0.0
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield json.loads(line)


def sample(told: dict[str, Any], prompt: Prompt, wanted: Round, counters: Counters | None) -> Sample:
    """From what the client told of one request, and the counters of its answer."""
    first, first_tokens, chunks, counted_by = arrivals(told["chunks"], counters)
    return Sample(
        prompt=prompt.name,
        kind=prompt.kind,
        concurrency=wanted.concurrency,
        round=wanted.number,
        started=told["started"],
        seconds=told["chunks"][-1][0] if told["chunks"] else told["ended"],
        first=first,
        first_tokens=first_tokens,
        chunks=chunks,
        counters=counters,
        finish=told["finish"],
        text=told["text"],
        error=told["error"],
        tokens_by=counted_by,
    )


Arrivals = tuple[float | None, int, tuple[tuple[float, int], ...], str]


def arrivals(chunks: Sequence[tuple[float, int | None, bool]], counters: Counters | None) -> Arrivals:
    """(seconds to the first token, tokens that came with it, (gap, tokens) of each later chunk, who counted them).

    Where the server tells with each chunk how many there are so far, by that; else all tokens spread over the chunks
    that brought text.
    """
    if not chunks:
        return None, 0, (), ""
    counts = [(at, so_far) for at, so_far, _ in chunks if count(so_far)]
    total = counters.generated if counters else None
    told = len(counts) >= sum(text for _, _, text in chunks) and (total is None or counts[-1][1] == total)
    if not told:
        texts = [at for at, _, text in chunks if text]
        total = len(texts) if total is None else total
        counts = [(at, total * number // len(texts)) for number, at in enumerate(texts, 1)]
    steps, seen = [], 0
    last = {at: so_far for at, so_far in counts if so_far is not None}  # what came in one piece came at once
    for at, so_far in last.items():
        if so_far > seen:
            steps.append((at, so_far - seen))
            seen = so_far
    if not steps:
        return chunks[0][0], 0, (), "spread"
    gaps = tuple((at - before, tokens) for (before, _), (at, tokens) in pairwise(steps))
    return steps[0][0], steps[0][1], gaps, "server" if told else "spread"
