"""What became of candidates: which holds, which is the best, in a table and as a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deploy.deployment.state import Run
from deploy.errors import CheckFailed
from deploy.measuring import statistics
from deploy.measuring.ladder import figure
from deploy.measuring.measurement import Against, Figure, Measurement
from deploy.trial.candidates import Candidate

COLUMNS = ("candidate", "verdict", "accept length", "tok/s", "speed-up", "left", "run", "why")
VERDICTS = {
    0: "holds", 9: "fails its gates", 10: "undecided", 8: "does not answer well", 7: "does not serve", 6: "died",
    5: "refused", 130: "stopped",
}  # fmt: skip
FURTHEST = (9, 10, 8, 7, 6, 5)  # exit codes by how far a candidate came
MOST = 128  # rounds: what only more of them would tell apart is equally fast to whoever waits for an answer


@dataclass(frozen=True)
class Tried:
    """A candidate, how it ended, and what was measured (of several replicas, of the slowest); its runs by host."""

    candidate: Candidate
    code: int
    why: str = ""
    run: str = ""
    seconds: float = 0.0
    runs: Mapping[str, Run] = field(default_factory=dict)
    measured: Measurement | None = None

    @property
    def tok_s(self) -> Figure | None:
        return self.figure("tok_s")

    def figure(self, name: str) -> Figure | None:
        """A figure of the lowest concurrency; None where it was not measured."""
        return self.measured.figures().get(name) if self.measured else None


def reasons(failure: Mapping[str, str]) -> list[str]:
    """Of a failure as it is told: which checks refused it, where it was refused; else what failed."""
    if failure["error"] != CheckFailed.__name__:
        return [failure["what"]]
    return [line for line in failure["evidence"].splitlines() if not line.startswith(" ")] or [failure["what"]]


@dataclass(frozen=True)
class Left:
    """What runs at the end: the candidate's run that is meant, and as which run it serves; or a word for it."""

    what: str
    of: str = ""
    run: str = ""


def best(tried: Sequence[Tried]) -> Tried | None:
    """The fastest of those whose gates hold; the first one where none was measured."""
    holding = [one for one in tried if one.code == 0]
    return max(holding, key=lambda one: one.tok_s.value if one.tok_s else 0.0, default=None)


def code(tried: Sequence[Tried]) -> int:
    """0 where one holds, else the exit code of the one that came furthest."""
    codes = [one.code for one in tried]
    if 0 in codes:
        return 0
    return next((furthest for furthest in FURTHEST if furthest in codes), codes[0])


@dataclass(frozen=True)
class Past:
    """What ran before: its run, whether its gates held, and what had been measured of it."""

    run: str
    holds: bool
    measured: Measurement | None


def rows(tried: Sequence[Tried], left: Left, before: Past | None) -> list[dict[str, str]]:
    """By COLUMNS: the candidates, then what they are held against: what ran before, and the same without a draft."""
    return [
        *(_row(one, left) for one in tried),
        *_before(before, left, [one.measured for one in tried if one.measured]),
        *_baseline(next((base for one in tried if (base := one.measured and one.measured.baseline)), None)),
    ]


def _row(one: Tried, left: Left) -> dict[str, str]:
    return {
        "candidate": one.candidate.name,
        "verdict": VERDICTS.get(one.code, f"failed ({one.code})"),
        "accept length": figure(one.figure("accept_length")),
        "tok/s": figure(one.tok_s, 1),
        "speed-up": figure(one.figure("speedup")),
        "left": "runs" if left.of == one.run != "" else "",
        "run": one.run,
        "why": one.why,
    }


def _before(past: Past | None, left: Left, now: Sequence[Measurement]) -> list[dict[str, str]]:
    """Without figures where it was asked otherwise last (`deploy bench --prompts ...`): they would be compared."""
    if past is None:
        return []
    alike = past.measured and (not now or any(past.measured.on.question == one.on.question for one in now))
    told = past.measured.figures() if past.measured and alike else {}
    return [
        {
            "candidate": "(what ran before)",
            "verdict": VERDICTS[0] if past.holds else "",
            "accept length": figure(told.get("accept_length")),
            "tok/s": figure(told.get("tok_s"), 1),
            "speed-up": figure(told.get("speedup")),
            "left": "runs" if left.what == "before" else "",
            "run": past.run,
        }
    ]


def _baseline(base: Against | None) -> list[dict[str, str]]:
    if base is None:
        return []
    return [{"candidate": "(without a draft)", "tok/s": figure(base.figures.get("tok_s"), 1), "run": base.run}]


def beside(tried: Sequence[Tried]) -> list[str]:
    """Which others are within the noise of the best one, so that chance chose between them, and what would tell."""
    first = best(tried)
    if first is None or first.tok_s is None:
        return []
    near: list[tuple[str, int | None]] = []  # and how many rounds would tell
    for one in tried:
        if one is first or one.code or not one.tok_s or not (ratio := statistics.ratio(first.tok_s, one.tok_s)):
            continue
        if ratio.low is None or ratio.low <= 1:  # without a band nobody can tell them apart
            near.append((one.candidate.name, statistics.telling(first.tok_s, one.tok_s, MOST)))
    if not near:
        return []
    return [f"within the noise of {first.candidate.name}: {', '.join(name for name, _ in near)}", f"-> {_advice(near)}"]


def _advice(near: Sequence[tuple[str, int | None]]) -> str:
    told, alike = [name for name, rounds in near if rounds], [name for name, rounds in near if not rounds]
    if not told:
        return "take them for equally fast"
    more = f"bench.rounds={max(rounds for _, rounds in near if rounds)} may tell"
    if not alike:
        return f"{more} them apart"
    return f"{more} {', '.join(told)} from it; take {', '.join(alike)} for equally fast"


def document(tried: Sequence[Tried], left: Left, before: Past | None, exit_code: int) -> dict[str, Any]:
    """The document of `--json`."""
    base = next((base for one in tried if (base := one.measured and one.measured.baseline)), None)
    return {
        "exit_code": exit_code,
        "candidates": [_told(one) for one in tried],
        "before": before and {"run": before.run, "holds": before.holds, **_figures(before.measured)},
        "baseline": base and base.model_dump(mode="json", include={"run", "at", "tok_s"}),
        "left": {"what": left.what, "of": left.of, "run": left.run},
    }


def _told(one: Tried) -> dict[str, Any]:
    return {
        "candidate": one.candidate.name,
        "ckpt": one.candidate.ckpt,
        "words": one.candidate.told,
        "run": one.run,
        "exit_code": one.code,
        "verdict": VERDICTS.get(one.code, "failed"),
        "why": one.why,
        "seconds": round(one.seconds, 1),
        **_figures(one.measured),
    }


def _figures(measured: Measurement | None) -> dict[str, Any]:
    figures = measured.figures() if measured else {}
    return {name: told.model_dump(mode="json") for name, told in figures.items()}
