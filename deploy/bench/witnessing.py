"""What the engine's log and metrics say of the time of a measurement, as `measuring/witnesses.py` judges it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from deploy import host
from deploy.engines import Totals, _gauges
from deploy.engines._written import Written
from deploy.errors import RemoteFailed, Unreachable
from deploy.measuring import acceptance, summary, witnesses
from deploy.measuring.measurement import Turn, Witness
from deploy.measuring.sample import Sample
from deploy.measuring.witnesses import Own, merged
from deploy.plan import Node
from deploy.remote import Remote

__all__ = ["Mark", "begin", "merged", "told"]

METRICS_TIMEOUT = 5.0  # seconds


@dataclass(frozen=True)
class Mark:
    """Where the log ended when measuring began; None: it could not be read."""

    at: int | None


def begin(node: Node, remote: Remote) -> Mark:
    """Before the first measured round."""
    if node.engine.GAUGES.written is None or node.num_steps is None:
        return Mark(None)
    return Mark(_log(remote).get("end"))


def told(
    mark: Mark | None, node: Node, remote: Remote, turns: Sequence[Turn], samples: Sequence[Sample]
) -> tuple[Witness, ...]:
    """After the last one, of the rounds since `mark` and their requests."""
    how = node.engine.GAUGES.written
    if how is None or node.num_steps is None:
        return ()
    answers = [sample.counters for sample in samples if sample.counters and not sample.error]
    own = Own(answers, max(turn.concurrency for turn in turns))
    found = (
        _of_log(mark, node, remote, own, replace(how, every=_number(how.flag, node) or how.every)),
        witnesses.of_counters(_moved(turns), own, node.engine.METRICS),
        _of_gauge(node, remote),
        witnesses.counts_first(how, own),
    )
    return tuple(one for one in found if one is not None)


def _moved(turns: Sequence[Turn]) -> Totals | None:
    """What the server's counters moved by in all rounds; None where one does not tell."""
    each = [summary.totals(turn.counted) for turn in turns if turn.counted]
    return acceptance.together(each) if len(each) == len(turns) else None


def _of_log(mark: Mark | None, node: Node, remote: Remote, own: Own, how: Written) -> Witness | None:
    if mark is None or mark.at is None:
        return None
    answer = _log(remote, str(mark.at), how.word)
    lines = answer.get("lines", [])
    return None if answer.get("lost") else witnesses.of_log(how, lines, own, _number(how.tokens, node))


def _log(remote: Remote, *words: str) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = remote.python(host.source("written"), remote.place.folder, *words)
    except RemoteFailed:
        return {}
    return answer


def _number(flag: str, node: Node) -> int | None:
    """What the command line says by a flag."""
    words = [str(word) for word in node.argv]
    value = words[words.index(f"--{flag}") + 1] if flag and f"--{flag}" in words[:-1] else ""
    return int(value) if value.isdecimal() and int(value) else None


def _of_gauge(node: Node, remote: Remote) -> Witness | None:
    """SGLang's gauge: what its last line of the log said."""
    gauges = node.engine.GAUGES
    if gauges.path is None or "accept_length" not in gauges.metrics:
        return None
    try:
        reply = remote.http("GET", node.port, gauges.path, timeout=METRICS_TIMEOUT, key=remote.place.key)
    except (OSError, Unreachable):
        return None
    told = reply.body.decode(errors="replace") if reply.status == 200 else ""
    length = _gauges.live(gauges, told, "").accept_length
    if length is None:
        return None
    source, note = f"{gauges.path} {gauges.metrics['accept_length']}", "a gauge of its last steps alone, so only shown"
    return Witness(source=source, accept_length=length, agrees=None, note=note)
