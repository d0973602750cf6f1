"""From rounds of single requests to what is told of them: figures with their noise, acceptance, what to mind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from deploy.engines import Counters, Totals
from deploy.measuring import acceptance, statistics
from deploy.measuring.measurement import Acceptance, Counted, Figure, Measurement, On, Percentiles, Rung, Share, Turn
from deploy.measuring.sample import Sample

BUSY = 0.8  # of a core: a load generator that has no more to give measures itself
WRONG = 0.01  # share of requests
BULKY = 0.1  # share of answers that come in large pieces
OWN = "own"  # the load generator that keeps each answer's counters


@dataclass(frozen=True)
class Limits:
    """What an answer must keep to count as good: seconds to its first token, and between two tokens on average."""

    ttft: float | None = None
    itl: float | None = None

    def kept(self, sample: Sample) -> bool:
        gaps = list(between_tokens(sample))
        slow = self.itl is not None and gaps and fmean(gaps) > self.itl
        late = self.ttft is not None and (sample.first is None or sample.first > self.ttft)
        return not (sample.error or slow or late)

    def __bool__(self) -> bool:
        return self.ttft is not None or self.itl is not None


@dataclass(frozen=True)
class Rounds:
    """The rounds of one concurrency, each with its requests."""

    turns: tuple[Turn, ...]
    samples: tuple[tuple[Sample, ...], ...]

    def each(self, one: Callable[[Turn, Sequence[Sample]], float | None]) -> Figure | None:
        """`one` of each round that tells it; None where none does."""
        told = [one(turn, samples) for turn, samples in zip(self.turns, self.samples, strict=True)]
        values = [value for value in told if value is not None]
        return statistics.figure(values) if values else None

    def percentiles(self, values: Callable[[Sample], Iterable[float]]) -> Percentiles | None:
        found = [
            self.each(lambda _, samples, q=q: _percentile(samples, values, q))  # type: ignore[misc]
            for q in (50, 95, 99)
        ]
        p50, p95, p99 = found
        return Percentiles(p50=p50, p95=p95, p99=p99) if p50 and p95 and p99 else None


def of(base: Measurement, samples: Sequence[Sample], limits: Limits, source: str) -> Measurement:
    """`base` with what its rounds show. `samples` are all measured requests; `source` names the server's counters."""
    found, why = _accepted(base.on, base.turns, samples, source)
    rungs = tuple(
        _rung(concurrency, _rounds(base.turns, samples, concurrency), limits, base.on, counted=bool(found))
        for concurrency in base.on.concurrency
    )
    return base.model_copy(
        update={
            "seconds": sum(turn.seconds for turn in base.turns),
            "rungs": rungs,
            "acceptance": found,
            "no_acceptance": why,
            "answers": _answers(samples) if base.on.temperature == 0 else {},
            "notes": tuple(_notes(base.on, rungs, samples)),
        }
    )


def between_tokens(sample: Sample) -> Iterator[float]:
    """Seconds between two tokens: those that come in one chunk share the time since the one before."""
    waited = 0.0
    for seconds, tokens in sample.chunks:
        waited += seconds
        if tokens > 0:
            yield from [waited / tokens] * tokens
            waited = 0.0


def failed(samples: Sequence[Sample]) -> str:
    """Why so many requests failed that the others tell nothing of the server; "" where it is at most one percent."""
    errors = [sample.error for sample in samples if sample.error]
    if len(errors) <= WRONG * len(samples):
        return ""
    first, times = Counter(errors).most_common(1)[0]
    most = f"{times} of them: " if 1 < times < len(errors) else ""
    return f"{len(errors)} of {len(samples)} requests failed: {most}{first}"


def _rounds(turns: Iterable[Turn], samples: Iterable[Sample], concurrency: int) -> Rounds:
    own = sorted((turn for turn in turns if turn.concurrency == concurrency), key=lambda turn: turn.number)
    by_number: dict[int, list[Sample]] = {turn.number: [] for turn in own}
    for sample in samples:
        if sample.concurrency == concurrency and sample.round in by_number:
            by_number[sample.round].append(sample)
    return Rounds(tuple(own), tuple(tuple(by_number[turn.number]) for turn in own))


def _rung(concurrency: int, rounds: Rounds, limits: Limits, on: On, *, counted: bool) -> Rung:
    turns, every = rounds.turns, [sample for samples in rounds.samples for sample in samples]
    watts = [turn.watts for turn in turns if turn.watts is not None]
    cut = sum(sample.finish == "length" for sample in every)
    return Rung(
        concurrency=concurrency,
        rounds=len(turns),
        requests=len(every),
        errors=sum(bool(sample.error) for sample in every),
        truncated=0 if on.fixed_length else cut,
        tokens=sum(sample.tokens for sample in every),
        seconds=sum(turn.seconds for turn in turns),
        tok_s=rounds.each(_speed) or Figure(value=0.0),
        tok_s_stream=rounds.each(lambda _, samples: _speed_of_a_stream(samples)),
        accept_length=_lengths(rounds) if counted else None,
        ttft=rounds.percentiles(lambda sample: () if sample.first is None else (sample.first,)),
        itl=rounds.percentiles(between_tokens),
        goodput=rounds.each(lambda turn, samples: _goodput(turn, samples, limits)) if limits else None,
        client_busy=max((turn.client_busy for turn in turns if turn.client_busy is not None), default=None),
        watts=fmean(watts) if watts else None,
        gpu_bytes=max((turn.gpu_bytes for turn in turns if turn.gpu_bytes is not None), default=None),
    )


def _speed(turn: Turn, samples: Sequence[Sample]) -> float | None:
    return sum(sample.tokens for sample in samples) / turn.seconds if turn.seconds > 0 else None


def _speed_of_a_stream(samples: Sequence[Sample]) -> float | None:
    """Of one stream while it generates: what came after the first token, in the time after it."""
    told = [(s.tokens - s.first_tokens, s.seconds - s.first) for s in samples if s.first is not None and s.tokens]
    tokens, seconds = sum(tokens for tokens, _ in told), sum(seconds for _, seconds in told)
    return tokens / seconds if tokens > 0 and seconds > 0 else None


def _goodput(turn: Turn, samples: Sequence[Sample], limits: Limits) -> float | None:
    return sum(limits.kept(sample) for sample in samples) / turn.seconds if turn.seconds > 0 else None


def _percentile(samples: Iterable[Sample], values: Callable[[Sample], Iterable[float]], q: int) -> float | None:
    told = [value for sample in samples if not sample.error for value in values(sample)]
    return statistics.percentile(told, q) if told else None


def _lengths(rounds: Rounds) -> Figure | None:
    """The accept length of each round; None where one does not tell it: the others would be another mean."""
    found = [_length(turn, samples) for turn, samples in zip(rounds.turns, rounds.samples, strict=True)]
    told = [length for length in found if length is not None]
    return statistics.figure(told) if told and len(told) == len(found) else None


def _length(turn: Turn, samples: Iterable[Sample]) -> float | None:
    told = acceptance.over(_counters(samples)) or acceptance.over([totals(turn.counted)] if turn.counted else [])
    return told.length if told else None


def _accepted(on: On, turns: Sequence[Turn], samples: Sequence[Sample], source: str) -> tuple[Acceptance | None, str]:
    """The acceptance of all rounds, or why there is none."""
    own = _counters(samples)
    counted = [totals(turn.counted) for turn in turns if turn.counted and turn.counted.steps is not None]
    by_server = acceptance.over(own) is None and len(counted) == len(turns) > 0
    told: Sequence[Counters] = counted if by_server else own
    less = acceptance.short(acceptance.together(counted), own) if by_server else ""
    if wrong := acceptance.impossible(told, on.num_steps) or less:
        return None, wrong
    found = acceptance.over(told)
    if found is None:
        drafts = on.draft is not None or on.num_steps is not None
        teller = "the server" if on.load == OWN else f"the load generator {on.load}"
        return None, f"{teller} tells no acceptance" if drafts else "nothing is drafted"
    whole = None if by_server else acceptance.shared(samples, on.num_steps)
    return Acceptance(
        accept_length=found.length,
        low=whole.low if whole else None,
        high=whole.high if whole else None,
        generated=found.generated,
        steps=found.steps,
        drafted=found.drafted or None,
        accepted=found.accepted,
        definition=acceptance.DEFINITION,
        source=source if by_server else "the answers",
        by_class={} if by_server else _by(samples, lambda sample: sample.kind, on.num_steps),
        by_concurrency=_by(samples, lambda sample: str(sample.concurrency), on.num_steps),
        by_rank=_by(samples, _rank, on.num_steps),
        positions=None if by_server else acceptance.positions(own),
    ), ""


def totals(counted: Counted) -> Totals:
    """The server's own count, as the engines tell it."""
    return Totals(counted.generated, counted.steps, counted.drafted, counted.accepted, counted.requests)


def _counters(samples: Iterable[Sample]) -> list[Counters]:
    return [sample.counters for sample in samples if sample.counters and not sample.error]


def _rank(sample: Sample) -> str | None:
    return None if sample.counters is None or sample.counters.rank is None else str(sample.counters.rank)


def _by(samples: Iterable[Sample], key: Callable[[Sample], str | None], num_steps: int | None) -> dict[str, Share]:
    parts: dict[str, list[Sample]] = {}
    for sample in samples:
        if not sample.error and (name := key(sample)) is not None:
            parts.setdefault(name, []).append(sample)
    told = {name: acceptance.shared(part, num_steps) for name, part in sorted(parts.items())}
    return {name: share for name, share in told.items() if share}


def _answers(samples: Iterable[Sample]) -> Mapping[str, list[str]]:
    """The different texts of each prompt, of a single stream: others are batched, and may round otherwise."""
    found: dict[str, list[str]] = {}
    for sample in samples:
        if sample.concurrency == 1 and not sample.error and sample.text not in found.setdefault(sample.prompt, []):
            found[sample.prompt].append(sample.text)
    return {prompt: texts for prompt, texts in sorted(found.items()) if texts}


def _notes(on: On, rungs: Iterable[Rung], samples: Sequence[Sample]) -> Iterator[str]:
    for rung in rungs:
        if rung.client_busy is not None and rung.client_busy > BUSY:
            yield (
                f"at concurrency {rung.concurrency} the load generator took {rung.client_busy:.0%} of a core: "
                "the server may be faster than what is told"
            )
    if any(sample.tokens_by == "spread" for sample in samples):
        yield (
            "the server does not tell how many tokens a chunk brought: an answer's tokens are spread evenly over its "
            "chunks, which makes the seconds between tokens look more even than they are"
        )
    ended = [sample for sample in samples if not sample.error and sample.chunks]
    lost = sum(sample.first_tokens + sum(n for _, n in sample.chunks) != sample.tokens for sample in ended)
    if lost > WRONG * len(ended):
        yield f"in {lost} of {len(ended)} answers the tokens of the chunks are not as many as the server counts"
    ended = [sample for sample in samples if not sample.error]
    most = 2 * ((on.num_steps or 0) + 1)
    bulky = sum(s.tokens_by == "server" and max(s.first_tokens, *(n for _, n in s.chunks), 0) > most for s in ended)
    if bulky > BULKY * len(ended):
        yield (
            f"in {bulky} of {len(ended)} answers more than {most} tokens came in one piece (a stream interval? a busy "
            "host?): the time to the first token, between tokens and tok/s of a stream are those of pieces"
        )
    over = sum(sample.tokens > on.max_tokens + (on.num_steps or 0) for sample in ended)  # a last step may go beyond it
    if over:
        yield f"{over} of {len(ended)} answers are told to have more tokens than the {on.max_tokens} asked for"
    short = sum(sample.tokens < on.max_tokens for sample in ended) if on.fixed_length else 0
    if short:
        yield f"{short} of {len(ended)} answers end before {on.max_tokens} tokens, though their length is to be fixed"
