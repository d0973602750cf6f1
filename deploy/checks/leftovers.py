"""What dead servers left behind: shared memory without an owner, and processes without a launcher."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from deploy.checks import Case
from deploy.facts import leftovers as facts
from deploy.facts import processes
from deploy.facts.processes import Process, Processes
from deploy.findings import Finding
from deploy.ownership import leftovers
from deploy.ownership.leftovers import Fate

TOLD = 5  # paths that are named, the largest first
MUCH = 16 << 20  # bytes; a container often has 64 MiB of /dev/shm in all


def check(case: Case) -> Iterator[Finding]:
    """Nothing of it stops a launch, but a full /dev/shm does (SIGBUS), and so does a GPU that an orphan holds."""
    found = case.facts[facts.FACT]
    fates = [fate for fate in leftovers.judge(found) if fate.item.uid == found.uid and fate.item.age >= leftovers.YOUNG]
    dead, kept = ([fate for fate in fates if fate.dead is which] for which in (True, False))
    orphans = {run: found for run, found in _runs(case.facts[processes.FACT]).items() if not _led(found)}
    for run, living in orphans.items():
        whose = "" if {one.uid for one in living} <= {found.uid} else f", as their user, {living[0].user},"
        yield Finding(
            "leftovers",
            "WARN",
            f"run {run.rpartition('/')[2]} has lost its launcher, and {_living(len(living))}",
            "\n".join(map(str, living)),
            f"it is of {run}: deploy down profile={_deployment(run)}{whose} in its project ends what is left; "
            "so does its next deploy up",
        )
    if _size(dead) >= MUCH:
        remedy = "the next deploy up, restart or down on this host removes them"
        yield Finding("leftovers", "WARN", f"dead processes left {_much(dead)} of shared memory", _lines(dead), remedy)
    if _size(kept) >= MUCH:
        what = f"{_much(kept)} of shared memory: no user can be seen, and they are left alone"
        yield Finding("leftovers", "WARN", what, _lines(kept), "who knows whose they are may remove them: rm PATH")
    if not orphans and _size(fates) < MUCH:
        yield Finding("leftovers", "PASS", f"dead processes left {_size(fates) >> 20} MiB of shared memory, no orphans")


def _runs(living: Processes) -> dict[str, list[Process]]:
    found: dict[str, list[Process]] = {}
    own = living.ancestors(living.asked_by)
    for process in living.all:
        if process.run and not process.zombie and process.pid not in own:
            found.setdefault(process.run, []).append(process)
    return found


def _led(processes: Sequence[Process]) -> bool:
    """The launcher is there, and called as it was started."""
    return any(word.rpartition("/")[2] == "launch.sh" for process in processes for word in process.cmdline)


def _living(number: int) -> str:
    return "1 process of it lives" if number == 1 else f"{number} processes of it live"


def _deployment(run: str) -> str:
    return run.rpartition("/runs/")[0].rpartition("/")[2]


def _much(fates: Sequence[Fate]) -> str:
    return f"{leftovers.pieces(len(fates))}, {_size(fates) >> 20} MiB,"


def _size(fates: Sequence[Fate]) -> int:
    return sum(fate.item.size for fate in fates)


def _lines(fates: Sequence[Fate]) -> str:
    largest = sorted(fates, key=lambda fate: -fate.item.size)
    more = [f"and {len(fates) - TOLD} more"] if len(fates) > TOLD else []
    return "\n".join([*(f"{fate.item.path}: {fate.why}" for fate in largest[:TOLD]), *more])
