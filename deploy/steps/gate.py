from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from deploy.bench import benching, diagnosis, lastgood
from deploy.bench.diagnosis import Diagnosis
from deploy.config.gates import split
from deploy.errors import DeployError, GateFailed, Undecided
from deploy.measuring import diagnosing, judging
from deploy.measuring.judging import NO_BASELINE, Judged
from deploy.measuring.measurement import Measurement
from deploy.plan import Node
from deploy.remote import Remote

QUALITY = "differences"  # what no draft's files explain: all other gates are on how much is gained by it


def gate(node: Node, remote: Remote) -> str:
    """Hold what was measured against the profile's gates, with further rounds where the noise hides the answer"""
    measured, judged = _judged(node, remote)
    failed = [one for one in judged if one.state == "fails"]
    told = _diagnosis(failed, measured, node, remote)
    holds = all(one.holds for one in judged)
    _write(remote, measured, _verdict(remote, measured, judged, told, holds=holds), holds=holds)
    if failed:
        raise _failure(remote, measured, judged, told)
    if not holds:
        raise _unknown(remote, measured, judged)
    return ", ".join(one.line() for one in judged) or "no gates"


def _judged(node: Node, remote: Remote) -> tuple[Measurement | None, Sequence[Judged]]:
    """Looks, and measures on, until each gate is decided, one has failed, or there are `bench.most_rounds`."""
    gates, wish = node.profile.gates, node.profile.bench
    measured = lastgood.beside(benching.read(remote), remote)
    looks = judging.looks(min((rung.rounds for rung in measured.rungs), default=1) if measured else 1, wish.most_rounds)
    judged = judging.judge(gates, measured, len(looks), wish.spread)
    for done, rounds in pairwise(looks):
        if measured is None or not judging.undecided(judged):
            break
        remote.say(f"the noise hides whether {_names(judged, 'within')} holds: {rounds - done} more rounds")
        measured = lastgood.beside(benching.more(node, remote, measured, rounds - done), remote)
        judged = judging.judge(gates, measured, len(looks), wish.spread)
    return measured, judged


def _names(judged: Iterable[Judged], state: judging.State) -> str:
    return ", ".join(one.name for one in judged if one.state == state)


def _diagnosis(failed: Iterable[Judged], measured: Measurement | None, node: Node, remote: Remote) -> Diagnosis | None:
    """Why so little of the draft is accepted, where that may be why; what is expected is the bar, or the last good
    run's.
    """
    bars = {split(one.name)[0]: one.bar for one in failed}
    if measured is None or measured.acceptance is None or not bars.keys() - {QUALITY}:
        return None
    last = measured.last_good.accept_length if measured.last_good else None
    expected = bars.get("accept_length", (last.low or last.value) if last else None)
    found = diagnosis.of(measured, node, remote, expected)
    return found if found.causes else None


def _verdict(
    remote: Remote, measured: Measurement | None, judged: Sequence[Judged], told: Diagnosis | None, *, holds: bool
) -> dict[str, Any]:
    """The document of verdict.json, which `status` and the record tell of.

    Noise, or others who asked, say nothing of a run: one that was good and is undecided now is still gone back to, and
    compared with.
    """
    figures = measured.figures() if measured else {}
    found = measured.alone if measured else None
    was_good = remote.place.adopted and remote.place.current is not None and remote.place.current.good
    document = {
        "run": remote.place.run,
        "holds": holds,
        "good": holds or (was_good and all(one.state != "fails" for one in judged)),
        "gates": [one.to_json() for one in judged],
        "at": time.time(),
        "accept_length": round(found.accept_length, 3) if found else None,
        **{name: round(figures[name].value, 3) if name in figures else None for name in ("tok_s", "speedup")},
    }
    return {**document, "diagnosis": told.model_dump()} if told else document


def _write(remote: Remote, measured: Measurement | None, verdict: dict[str, Any], *, holds: bool) -> None:
    """Beside the run and into the record; what was measured has the last good run beside it by now.

    Gates of one command alone do not make a run good, or take that from it.
    """
    files = {"verdict.json": json.dumps(verdict, indent=1)}
    if measured and not measured.why:
        text = measured.model_dump_json(indent=1)
        files |= {"bench.json": text, **({lastgood.NAME: text} if holds else {})}
    kept = {name: text for name, text in files.items() if name == "bench.json" or not remote.place.once}
    remote.write(remote.place.folder, kept)
    remote.file("the verdict", {name: text for name, text in files.items() if name != lastgood.NAME})
    remote.say("verdict", verdict=verdict)


def _failure(
    remote: Remote, measured: Measurement | None, judged: Sequence[Judged], told: Diagnosis | None
) -> GateFailed:
    """What failed with its bar and its noise, the others, and what speaks against the draft."""
    dead = measured and measured.acceptance and diagnosing.dead(measured.acceptance)
    why = told.title if told and dead else f"below its gates: {_short(judged)}"
    return GateFailed(
        f"{remote.host.name}: serving, but {why}",
        evidence="\n".join([*_lines(judged), *(told.lines() if told else ())]),
        remedy="with another draft: deploy restart --ckpt NEW; or another bar in the profile's gates",
    )


def _short(judged: Iterable[Judged]) -> str:
    return ", ".join(f"{one.name} {_value(one)}, wanted {one.wanted}" for one in judged if one.holds is False)


def _value(one: Judged) -> str:
    return "" if one.measured is None else judging.number(one.measured)


def _lines(judged: Iterable[Judged]) -> list[str]:
    words = {True: "holds", False: "fails", None: "cannot be told"}
    return [f"{words[one.holds]}: {one.line()}" for one in judged]


def _unknown(remote: Remote, measured: Measurement | None, judged: Sequence[Judged]) -> DeployError:
    """Not measured, or hidden by the noise: neither passed nor failed."""
    evidence, missing = "\n".join(_lines(judged)), _names(judged, "unmeasured")
    if not missing:
        rounds = max(one.rounds for one in judged)
        return Undecided(
            f"{remote.host.name}: the noise hides whether {_names(judged, 'within')} holds, after {rounds} rounds",
            evidence=evidence,
            remedy="a quieter host, more rounds (bench.most_rounds=32), or a bar that is farther from what is usual",
        )
    remedy = (
        "absent is not zero: does the server run the draft at all (deploy logs)? is bench.prompts empty? "
        "To go without the gate: gates={}"
    )
    if measured and measured.why:
        remedy = "deploy bench measures again what runs"
    elif any(one.why == NO_BASELINE for one in judged):
        remedy = "deploy bench --baseline restarts it without speculation once, and keeps what it measures"
    return Undecided(f"{remote.host.name}: {missing} could not be measured", evidence=evidence, remedy=remedy)
