"""Where a starting server is: each rank's marks, taken together. Pure; whoever hears a log brings the clock.

A server is where its slowest rank is: the others wait for that one, whatever they said last.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

from deploy.engines._log import Component, Progress


class Stage(NamedTuple):
    """A phase, of one of the models where it has to do with one."""

    component: Component
    phase: str

    def __str__(self) -> str:
        return f"{self.component} {self.phase}".strip()


Order = tuple[Stage, ...]
COUNTED = "weights"  # graphs are counted several times over: for prefill, for decode
_Place = tuple[int, bool]  # of a stage in the order; whether it has ended


def orders(*rows: tuple[str, ...]) -> tuple[tuple[str, Order], ...]:
    """A table of (first version, its phases in order with commas between, ...), the oldest first."""
    return tuple((since, tuple(map(_stage, ", ".join(phases).split(", ")))) for since, *phases in rows)


def _stage(text: str) -> Stage:
    first, _, rest = text.partition(" ")
    return Stage(cast("Component", first), rest) if first in ("target", "draft") else Stage("", text)


def order(table: Sequence[tuple[str, Order]], version: str | None) -> Order:
    """The order of a version's phases; that of the newest one where the version is not known."""
    known = [phases for since, phases in table if version is None or _number(since) <= _number(version)]
    return (known or [table[0][1]])[-1]


def _number(version: str) -> tuple[int, ...]:
    """Of "0.5.12.post1+cpu" (0, 5, 12)."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


@dataclass(frozen=True)
class Standing:
    """Where a server is: its stage, how much of that is done, in words, since when, and the ranks that it waits for.

    `since` is on the clock that was brought. `behind` is empty where all ranks are in the same place.
    """

    stage: Stage
    since: float
    text: str = ""
    done: int | None = None
    total: int | None = None
    behind: tuple[str, ...] = ()


class Startup:
    """A start as its log tells it so far. Each rank only goes forward; what it repeats changes nothing.

    Its first stage begins with the clock's `now`, before any line.
    """

    def __init__(self, phases: Order, now: float) -> None:
        self.order = phases
        self._ranks: dict[str, _Rank] = {}
        self._passed: list[tuple[Stage, float]] = [(phases[0], now)] if phases else []
        self._said: dict[Stage, Progress] = {}

    @property
    def standing(self) -> Standing | None:
        """Where it is; None for a server whose phases nobody knows."""
        if not self._passed:
            return None
        stage, since = self._passed[-1]
        said = self._said.get(stage)
        told = (said.text, said.done, said.total) if said else ("", None, None)
        return Standing(stage, since, *told, self._behind())

    @property
    def whole(self) -> bool:
        """Whether it was heard from its first mark on."""
        return bool(self.order) and self.order[0] in self._said

    def hear(self, told: Progress, now: float) -> None:
        """Take in what a line tells, at a time that is not before the last one."""
        rank = self._rank(told)
        place = rank.place(told, self.order) if rank and told.phase else None
        if rank is None or place is None:
            return
        stage = self.order[place[0]]
        counted = told if told.done is not None or stage not in self._said else _counted(told, self._said[stage])
        self._said[stage] = counted
        rank.go(place, told)
        slowest = self._slowest("")[0]  # may lie behind where a rank speaks up for the first time
        if slowest > self.order.index(self._passed[-1][0]):
            self._passed.append((self.order[slowest], now))

    def seconds(self, now: float) -> dict[str, float]:
        """How long it was in each stage, in their order; the one it is in until `now`. Being ready takes no time."""
        ends = [*(since for _, since in self._passed[1:]), now]
        passed = zip(self._passed, ends, strict=False)  # nothing is passed where no phases are known
        return {str(stage): round(end - since, 3) for (stage, since), end in passed if stage != self.order[-1]}

    def left(self, usual: Mapping[str, float], now: float) -> float | None:
        """Seconds until it is ready, by how long each stage took in earlier starts; None where none is known.

        Shards that are being loaded go by their own speed: a cold disk reads slower than the last time.
        """
        standing = self.standing
        if standing is None or not usual:
            return None
        gone = max(now - standing.since, 0.0)
        here = max(usual.get(str(standing.stage), 0.0) - gone, 0.0)
        done, total = standing.done or 0, standing.total or 0
        if standing.stage.phase == COUNTED and 0 < done < total and gone >= 1:
            here = gone / done * (total - done)
        later = self.order[self.order.index(standing.stage) + 1 :]
        return here + sum(usual.get(str(stage), 0.0) for stage in later)

    def _rank(self, told: Progress) -> _Rank | None:
        """A bar has no rank in front; it is of the first one that is in its phase, as the bars' writer is."""
        if told.rank or told.done is None or len(self._ranks) <= 1:
            return self._ranks.setdefault(told.rank, _Rank())
        there = [name for name, rank in self._ranks.items() if self.order[rank.at[0]].phase == told.phase]
        return self._ranks[min(there, key=_by_number)] if there else None

    def _slowest(self, above: str) -> _Place:
        """A process that starts others speaks before they do and after they are done, and waits for them between."""
        own = self._ranks[above].at if above in self._ranks else (0, False)
        below = _children(above, list(self._ranks))
        return max(own, min(map(self._slowest, below))) if below else own

    def _behind(self) -> tuple[str, ...]:
        names = [name for name in self._ranks if not _children(name, list(self._ranks))]
        slowest = min((self._ranks[name].at for name in names), default=(0, False))
        if self.order[slowest[0]] != self._passed[-1][0]:  # who speaks for all of them is farther
            return ()
        late = [name for name in names if self._ranks[name].at == slowest]
        return tuple(sorted(late, key=_by_number)) if len(late) < len(names) else ()


class _Rank:
    """One rank's place."""

    def __init__(self) -> None:
        self.at: _Place = (0, False)
        self._begun: set[int] = set()

    def place(self, told: Progress, phases: Order) -> _Place | None:
        """Where the line is; None where that lies behind it, or the version knows no such phase."""
        places = [number for number, stage in enumerate(phases) if stage.phase == told.phase]
        if told.component:
            places = [number for number in places if phases[number].component in (told.component, "")]
        elif told.edge == "begin":  # what has begun already is begun again for the next model only
            places = [number for number in places if number not in self._begun or number == max(places)]
        elif begun := self._begun.intersection(places):
            places = [max(begun)]
        else:  # nothing tells a beginning: of the model that it is at, and once that has ended, of the next one
            places = [number for number in places if (number, False) >= self.at or number == max(places)]
        number = next((number for number in places if number >= self.at[0]), None)
        if number is None:
            return None
        return number, told.edge == "end"

    def go(self, place: _Place, told: Progress) -> None:
        """Forward, never back."""
        if told.edge == "begin":
            self._begun.add(place[0])
        self.at = max(self.at, place)


def _counted(told: Progress, before: Progress) -> Progress:
    """Words without a count leave the count as it was."""
    return Progress(told.phase, told.component, told.rank, before.done, before.total, told.text)


def _children(above: str, names: Sequence[str]) -> list[str]:
    """The ranks right below one: "DP0" is above "DP0 TP3", and "" above all."""
    below = [name for name in names if _is_part(above, name)]
    return [name for name in below if not any(_is_part(other, name) for other in below)]


def _is_part(above: str, below: str) -> bool:
    return set(above.split()) < set(below.split())


def _by_number(rank: str) -> list[tuple[str, int]]:
    return [(kind, int(number)) for kind, number in re.findall(r"(\D+)(\d+)", rank)]
