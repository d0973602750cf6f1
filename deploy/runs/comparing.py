"""How two runs differ: in what they were, in how long they took, and in what was measured, noise considered."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from deploy.deployment import compare as commands
from deploy.measuring import statistics
from deploy.measuring.measurement import Figure, Measurement
from deploy.runs.kept import Kept
from deploy.text.words import RunPath

CHANCE = 0.05  # that noise makes any of all figures seem better or worse
ALIKE = 0.005  # of the ratio: two starts of one server differ by as much, which no rounds of one start tell
HIDING = 1.5  # high / low of a ratio's band: in a wider one a change by a quarter, either way, could hide
ASKED = ("load", "prompts", "max_tokens", "fixed_length", "temperature", "seed")  # as `On.question` has them
LOWER = ("ttft", "itl", "differences")  # what is better where it is less
EXACT = "differences"  # a count, which has no noise
SECTIONS = ("profile", "env", "flags", "checkpoint", "versions", "project")

Verdict = Literal["better", "same", "worse", "unknown"]


@dataclass(frozen=True)
class Change:
    """One thing that differs; None where a run has it not."""

    key: str
    a: Any
    b: Any


@dataclass(frozen=True)
class Compared:
    """One figure of both runs: B beside A. `ratio` is B / A with the band by which it is judged."""

    name: str
    a: Figure | None
    b: Figure | None
    ratio: Figure | None
    verdict: Verdict


@dataclass(frozen=True)
class Took:
    """Seconds of one step, or of one phase of the start, on the slowest host; None where it was not come to."""

    name: str
    a: float | None
    b: float | None


@dataclass(frozen=True)
class Differences:
    """Of run B from run A. `incomparable` says why no figure can be called better or worse, where that is so."""

    a: Kept
    b: Kept
    sections: Mapping[str, tuple[Change, ...]]
    steps: tuple[Took, ...]
    phases: tuple[Took, ...]
    bench: tuple[Compared, ...]
    incomparable: str

    @property
    def none(self) -> bool:
        """Whether both were the same thing; what they took and measured aside."""
        return not any(self.sections.values())

    def to_json(self) -> dict[str, Any]:
        """Sections of {key, a, b}; steps and phases of {name, a, b}; bench of {name, a, b, ratio, verdict}."""
        figures = [
            {"name": one.name, "verdict": one.verdict}
            | {
                side: figure and figure.model_dump()
                for side, figure in (("a", one.a), ("b", one.b), ("ratio", one.ratio))
            }
            for one in self.bench
        ]
        return {
            **{side: asdict(run.summary) | {"folder": str(run.folder)} for side, run in (("a", self.a), ("b", self.b))},
            **{name: [asdict(change) for change in changes] for name, changes in self.sections.items()},
            "steps": [asdict(one) for one in self.steps],
            "phases": [asdict(one) for one in self.phases],
            "bench": figures,
            "incomparable": self.incomparable,
        }


def compare(a: Kept, b: Kept) -> Differences:
    """Whatever both have recorded; of what one of them has nothing at all, no differences are told."""
    flags = [(_flags(one), _flags(other)) for one, other in _pairs(a, b)]
    env = [(one.get("env", {}), other.get("env", {})) for one, other in _pairs(a, b)]
    names = [node["host"]["name"] for node in b.nodes if isinstance(node.get("host"), Mapping)]
    sections = {
        "profile": tuple(_changes(a.profile, b.profile)) if a.profile and b.profile else (),
        "env": tuple(_of_all(names, env)),
        "flags": tuple(_of_all(names, flags)),
        "checkpoint": tuple(_changes(*_checkpoints(a, b))),
        "versions": tuple(_versions(a, b)),
        "project": tuple(_changes(a.project, b.project)) if a.project and b.project else (),
    }
    incomparable = _incomparable(a.measurement, b.measurement)
    return Differences(
        a,
        b,
        sections,
        tuple(_took(_steps(a), _steps(b))),
        tuple(_took(_phases(a), _phases(b))),
        tuple(figures(a.measurement, b.measurement, judged=not incomparable)),
        incomparable,
    )


def figures(a: Measurement | None, b: Measurement | None, *, judged: bool = True) -> Iterator[Compared]:
    """Every figure of either; goodput is judged only where both count the same as good."""
    one, other = (measured.figures() if measured else {} for measured in (a, b))
    otherwise = a is not None and b is not None and a.on.slo != b.on.slo
    for told in side_by_side(one, other, judged=judged):
        unlike = otherwise and told.name.startswith("goodput")
        yield replace(told, ratio=None, verdict="unknown") if unlike else told


def side_by_side(one: Mapping[str, Figure], other: Mapping[str, Figure], *, judged: bool = True) -> Iterator[Compared]:
    """Every figure of either; one that a concurrency repeats (`tok_s@1` beside `tok_s`) is told once."""
    names = [name for name in {**one, **other} if "@" in name or f"{name}@" not in _bases(one, other)]
    both = sum(name in one and name in other for name in names)
    for name in names:
        before, after = one.get(name), other.get(name)
        ratio = verdict = None
        if before and after:
            ratio = statistics.ratio(after, before, 1 - CHANCE / both)
            verdict = _verdict(name, before, after, ratio) if judged else None
        yield Compared(name, before, after, ratio, verdict or "unknown")


def _bases(one: Mapping[str, Figure], other: Mapping[str, Figure]) -> set[str]:
    return {f"{name.partition('@')[0]}@" for name in {**one, **other} if "@" in name}


def _verdict(name: str, a: Figure, b: Figure, ratio: Figure | None) -> Verdict:
    """By the ratio's band. Nothing is known where there is none, or it is so wide that much could hide in it."""
    if name == EXACT:
        low = high = b.value - a.value + 1
    elif ratio is None or ratio.low is None or ratio.high is None:
        return "unknown"
    else:
        low, high = ratio.low, ratio.high
        if abs(ratio.value - 1) < ALIKE and high / low < HIDING:
            return "same"
    if low <= 1 <= high:
        return "same" if name == EXACT or high / low < HIDING else "unknown"
    return "better" if (low > 1) != name.startswith(LOWER) else "worse"


def _incomparable(a: Measurement | None, b: Measurement | None) -> str:
    for which, measured in (("the first", a), ("the second", b)):
        if measured is None:
            return f"{which} run measured nothing"
        if measured.why:
            return f"{which} run has no figures: {measured.why}"
    if a is None or b is None:
        return ""
    differ = [name for name, one, other in zip(ASKED, a.on.question, b.on.question, strict=True) if one != other]
    differ += ["hosts"] * (a.on.hosts != b.on.hosts)
    differ += ["model"] * ((a.on.model, a.on.model_id) != (b.on.model, b.on.model_id))
    return f"not the same was measured: {', '.join(differ)} differ" if differ else ""


def _changes(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[Change]:
    """The leaves that differ, by their keys with dots. A list is a leaf; None is what is not set."""
    one, other = dict(_leaves(a)), dict(_leaves(b))
    for key in {**one, **other}:
        if one.get(key) != other.get(key):
            yield Change(key, one.get(key), other.get(key))


def _leaves(told: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in told.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _of_all(hosts: Sequence[str], pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> Iterator[Change]:
    """What differs on all hosts alike, told once; and on some, with the host's name (as the second run has it)."""
    found = [list(_changes(one, other)) for one, other in pairs]
    common = [change for change in found[0] if all(change in others for others in found)] if found else []
    yield from common
    for host, changes in zip(hosts, found, strict=False):
        yield from (Change(f"{host}: {one.key}", one.a, one.b) for one in changes if one not in common)


def _pairs(a: Kept, b: Kept) -> Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """The nodes of both side by side: where one run has fewer, the others have nobody to be compared with."""
    return zip(a.nodes, b.nodes, strict=False)


def _flags(node: Mapping[str, Any]) -> dict[str, str]:
    """{--flag: its words} of a node's command line, the program itself under "command"."""
    argv = node.get("argv")
    words = argv if isinstance(argv, list) else []
    said = [word if isinstance(word, str) else RunPath(" ".join(map(str, dict(word).values()))) for word in words]
    return {flag or "command": " ".join(values) for flag, values in commands.flags(said).items()}


def _checkpoints(a: Kept, b: Kept) -> list[dict[str, Any]]:
    """Of both runs; the model only where both have recorded it, as earlier versions did not."""
    both = all(run.checkpoints for run in (a, b))
    return [{key: value for key, value in _checkpoint(run).items() if both or key != "model"} for run in (a, b)]


def _checkpoint(run: Kept) -> dict[str, Any]:
    """Draft and models, with the draft's files by name."""
    draft, told = run.draft, dict[str, Any]()
    if draft:
        files = {file["path"]: f"{file['sha256'][:16]}, {file['size']:,} bytes" for file in draft.get("files", ())}
        told["draft"] = {"path": draft.get("path"), "digest": str(draft.get("digest", ""))[:16], **files}
    models = run.checkpoints.get("model")
    if isinstance(models, Mapping):
        known = [json.dumps(model, sort_keys=True) for model in models.values()]
        told["model"] = json.loads(known[0]) if len(set(known)) == 1 else dict(models)
    return told


def _versions(a: Kept, b: Kept) -> Iterator[Change]:
    known = [key for key in ("tool", "python") if all(key in run.versions for run in (a, b))]
    here = [{key: run.versions[key] for key in known} | {"hosts": list(run.hosts)} for run in (a, b)]
    yield from _changes(*here)
    hosts = [told if isinstance(told := run.versions.get("hosts"), Mapping) else {} for run in (a, b)]
    pairs = [(dict(one), dict(other)) for one, other in zip(*(host.values() for host in hosts), strict=False)]
    yield from _of_all(list(hosts[1]), pairs)


def _steps(run: Kept) -> dict[str, float]:
    return {
        step: max(took)
        for step in run.state.steps
        if (took := [cell.seconds for row in run.state.rows.values() if (cell := row.cell(step)).seconds is not None])
    }


def _phases(run: Kept) -> dict[str, float]:
    names = dict.fromkeys(name for host in run.hosts.values() for name in host.phases)
    return {name: max(host.phases.get(name, 0.0) for host in run.hosts.values()) for name in names}


def _took(a: Mapping[str, float], b: Mapping[str, float]) -> Iterator[Took]:
    yield from (Took(name, a.get(name), b.get(name)) for name in {**a, **b})
