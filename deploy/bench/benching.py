"""Measuring a node's server in rounds: what is asked, how it went, and whether the numbers may be believed.

In the run's folder: `bench.json` is the Measurement; `bench.jsonl` has each of its requests, a Sample a line;
`prompts.jsonl` what was asked, as `bench.prompts` takes it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from deploy import loads, prompts
from deploy.bench import baseline, circumstances, counted, provenance, witnessing
from deploy.bench.witnessing import Mark
from deploy.engines import Totals
from deploy.errors import ConfigError, NotReady, SmokeFailed, Undecided
from deploy.loads import Load, Ran, Round
from deploy.measuring import acceptance, summary
from deploy.measuring.measurement import Counted, Measurement, Turn
from deploy.measuring.prompts import Set
from deploy.measuring.sample import Sample
from deploy.measuring.summary import Limits
from deploy.plan import Node
from deploy.remote import LONG, Remote
from deploy.server import identity, simulating

WARM_UP = 16  # tokens of each warm-up answer: what is set up lazily is set up with the first ones
LEAST = 4  # requests of a warm-up
UNCOUNTED = "an answer without token counts"
TOLD = 0.5  # seconds between two words on how far it is


@dataclass
class Going:
    """What the rounds brought so far, of `planned` requests; a warm-up is none of them."""

    planned: int
    rounds: int
    turns: list[Turn] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    counters: Totals | None = None  # the server's, after the last round
    late: bool = False  # whether it counts too late, or not at all
    mark: Mark | None = None  # of the log, before the first one

    def tell(self, wanted: Round, ended: int, remote: Remote) -> None:
        """How far it is, once so many requests of the round have ended."""
        many = f", {wanted.concurrency} at once" if wanted.concurrency > 1 else ""
        if not wanted.number:
            remote.say(f"warm-up{many}")
            return
        done = len(self.samples) + ended
        remote.say(f"round {wanted.number} of {self.rounds}{many}", done=done, total=self.planned)


def measure(node: Node, remote: Remote) -> Measurement:
    """All rounds at every concurrency. The measurement has `why` where it may not be believed, or nothing is asked;
    NotReady or Undecided where the server is not proved to be the run's; SmokeFailed where it answers nothing.
    """
    wish = node.profile.bench
    try:
        asked = prompts.wished(wish.prompts)
    except ConfigError as error:
        return _stored(
            Measurement(at=time.time(), why=error.what, on=circumstances.of(node, remote, Set("none", ()))), [], remote
        )
    base = Measurement(at=time.time(), on=circumstances.of(node, remote, asked))
    if not asked.prompts:
        return _stored(base.model_copy(update={"why": "no prompts: nothing is measured"}), [], remote)
    _filed({"prompts.jsonl": asked.lines()}, remote)
    return _measured(base, [], _wanted(range(1, wish.rounds + 1), asked, node), node, remote)


def more(node: Node, remote: Remote, measured: Measurement, rounds: int) -> Measurement:
    """So many further rounds, put together with those of `measured`; errors as of `measure`."""
    if measured.why:
        return measured
    asked = prompts.wished(node.profile.bench.prompts)
    first = 1 + max(turn.number for turn in measured.turns)
    return _measured(measured, _samples(remote), _wanted(range(first, first + rounds), asked, node), node, remote)


def read(remote: Remote) -> Measurement | None:
    """What was measured last of the run that is walked here; None where nothing was, or it cannot be read."""
    text = remote.run("cat", "--", f"{remote.place.folder}/bench.json", ok=(0, 1), limit=LONG)
    try:
        return Measurement.model_validate_json(text) if text else None
    except ValueError:  # pydantic's; written by another version, or before there were measurements
        return None


def _measured(
    base: Measurement, past: Sequence[Sample], wanted: Sequence[Round], node: Node, remote: Remote
) -> Measurement:
    """`base`, which has its own earlier rounds with the samples `past`, with these rounds."""
    try:
        before = _serving(node, remote)
        if why := simulating.why(node, remote):
            return _stored(_nothing(base, why), past, remote)
        going = _rounds(wanted, node, remote, warm=not past)
        after = _serving(node, remote)
    except (NotReady, Undecided) as error:
        _stored(_nothing(base, error.what), [], remote)
        raise
    turns, samples = (*base.turns, *going.turns), [*past, *going.samples]
    commands = tuple(dict.fromkeys((*base.on.commands, *going.commands)))
    found = base.model_copy(update={"turns": turns, "on": base.on.model_copy(update={"commands": commands})})
    if why := provenance.exchanged(before, after) or provenance.against(turns, samples):
        return _stored(_nothing(found, why), samples, remote)
    heard = witnessing.told(going.mark, node, remote, going.turns, going.samples)
    told = summary.of(found, samples, _limits(node), node.engine.METRICS or "")
    told = told.model_copy(update={"witnesses": witnessing.merged(base.witnesses, heard)})
    return _stored(_completed(told, node, remote), samples, remote)


def _serving(node: Node, remote: Remote) -> set[tuple[int, int]]:
    """The processes that answer, none where they cannot be seen; errors as of `identity.look`."""
    return {(process.pid, process.start_ticks) for process in identity.look(node, remote).processes}


def _completed(measured: Measurement, node: Node, remote: Remote) -> Measurement:
    """What it means beside other measurements."""
    return baseline.compared(measured, node, remote)


def _wanted(numbers: range, asked: Set, node: Node) -> list[Round]:
    """Round by round, each at every concurrency before the next: what drifts in time then drifts for all of them."""
    ladder = sorted(set(node.profile.bench.concurrency))
    return [_round(number, concurrency, asked, node) for number in numbers for concurrency in ladder]


def _rounds(wanted: Sequence[Round], node: Node, remote: Remote, *, warm: bool) -> Going:
    load = loads.load(node.profile.bench.load)
    going = Going(planned=sum(len(one.prompts) for one in wanted), rounds=wanted[-1].number)
    for one in {one.concurrency: one for one in wanted}.values() if warm else ():
        few, asked = min(WARM_UP, one.max_tokens), one.prompts[: max(LEAST, 2 * one.concurrency)]
        warm_up = replace(one, number=0, max_tokens=few, prompts=asked)
        _answered(_ran(warm_up, load, going, node, remote), remote)
    going.counters, going.mark = counted.rested(node, remote), witnessing.begin(node, remote)
    for one in wanted:
        ran = _ran(one, load, going, node, remote)
        going.turns.append(_turn(one, ran, going, node, remote))
        going.samples += ran.samples
        going.commands.append(ran.command)
        if provenance.hopeless(going.turns, going.samples, going.planned):
            break
    return going


def _round(number: int, concurrency: int, asked: Set, node: Node) -> Round:
    wish = node.profile.bench
    return Round(
        number=number,
        concurrency=concurrency,
        prompts=asked.round(concurrency, number, wish.seed),
        max_tokens=wish.max_tokens,
        timeout=wish.timeout,
        fixed_length=wish.fixed_length,
        temperature=wish.temperature,
        seed=wish.seed,
    )


def _ran(wanted: Round, load: Load, going: Going, node: Node, remote: Remote) -> Ran:
    """One round; an answer that nobody counted is none that tells anything."""
    remote.pause(0)
    told = time.monotonic()
    going.tell(wanted, 0, remote)

    def progress(ended: int, _: int) -> None:
        nonlocal told
        if time.monotonic() - told >= TOLD:
            told = time.monotonic()
            going.tell(wanted, ended, remote)

    ran = load.run(wanted, node, remote, progress)
    samples = (one if one.counters or one.error else replace(one, error=UNCOUNTED) for one in ran.samples)
    return replace(ran, samples=tuple(samples))


def _answered(warm_up: Ran, remote: Remote) -> None:
    """SmokeFailed where not one request of a warm-up was answered: there is no use in measuring."""
    errors = [sample.error for sample in warm_up.samples if sample.error]
    if errors and len(errors) == len(warm_up.samples):
        raise SmokeFailed(
            f"{remote.host.name}: not one of {len(errors)} requests of the warm-up was answered as it should",
            evidence="\n".join(dict.fromkeys(errors))[:1500],
            remedy="deploy logs shows the server's own words; deploy ask shows what it answers",
        )


def _turn(wanted: Round, ran: Ran, going: Going, node: Node, remote: Remote) -> Turn:
    """How the round went, with what the server counted since the one before."""
    before, ours = going.counters, [sample for sample in ran.samples if not sample.error]
    tokens = sum(sample.tokens for sample in ours)

    def enough(now: Totals) -> bool:
        if before is None or before.requests is None or now.requests is None:
            return True
        return now.requests - before.requests >= len(ours) and now.generated - before.generated >= tokens

    if before:
        # one that counts late, or never, is waited for once more at the end, and not in each round
        last = len(going.samples) + len(ran.samples) >= going.planned
        patience = 0.0 if going.late and not last else counted.SETTLED
        going.counters, in_time = counted.settled(node, remote, enough, patience)
        going.late = going.late or not in_time
    moved = acceptance.between(before, going.counters)
    return Turn(
        concurrency=wanted.concurrency,
        number=wanted.number,
        seconds=ran.seconds,
        clock_jump=ran.clock_jump,
        client_busy=ran.client_busy,
        watts=ran.watts,
        gpu_bytes=ran.gpu_bytes,
        counted=Counted(**{name: getattr(moved, name) for name in Counted.model_fields}) if moved else None,
    )


def _limits(node: Node) -> Limits:
    slo = node.profile.bench.slo
    return Limits(slo.ttft, slo.itl)


def _nothing(measured: Measurement, why: str) -> Measurement:
    """The same without a number."""
    return Measurement(at=measured.at, seconds=measured.seconds, why=why, on=measured.on)


def _stored(measured: Measurement, samples: Iterable[Sample], remote: Remote) -> Measurement:
    """Written beside the run, and kept in the record."""
    lines = "".join(f"{json.dumps(sample.to_json(), separators=(',', ':'))}\n" for sample in samples)
    _filed({"bench.json": measured.model_dump_json(indent=1), "bench.jsonl": lines}, remote)
    return measured


def _filed(files: Mapping[str, str], remote: Remote) -> None:
    remote.write(remote.place.folder, files)
    remote.file("measured", files)


def _samples(remote: Remote) -> list[Sample]:
    """Those of the earlier rounds."""
    text = remote.run("cat", "--", f"{remote.place.folder}/bench.jsonl", limit=LONG, timeout=120)
    return [Sample.from_json(json.loads(line)) for line in text.splitlines()]
