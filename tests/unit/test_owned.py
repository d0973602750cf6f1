"""Whose a process is, by proofs alone: hosts put on paper, with pids that came round, leaders that are gone, titles."""

from __future__ import annotations

from typing import Any

import pytest

from deploy.facts import processes
from deploy.facts.launched import Launch
from deploy.facts.processes import Processes
from deploy.ownership import ending
from deploy.ownership.owned import heads, inside_of, owned, proofs, zombies

RUNS = "/w/m/kimi/runs"
RUN, OTHER = f"{RUNS}/r1", "/w/m/glm/runs/r1"
LOG = [f"{RUN}/server.log"]
HERE = Launch(RUN, 10, 10, "now")


def process(pid: int, ppid: int, run: str | None = "", **more: Any) -> dict[str, Any]:
    """A process that leads its own session, started at the tick that is its pid."""
    base = {"pid": pid, "name": "x", "state": "S", "ppid": ppid, "pgrp": pid, "session": pid, "threads": 1}
    return {**base, "start_ticks": pid, "uid": 1000, "user": "me", "cmdline": ["x"], "cgroup": "/", "run": run, **more}


def table(*living: dict[str, Any]) -> Processes:
    """They, and our own connection: sshd (80) and the program that looks (81)."""
    own = [process(80, 1), process(81, 80)]
    base = {"boot_id": "now", "uptime": 100.0, "ticks_per_second": 100, "asked_by": 81}
    return processes.parse({**base, "processes": [*living, *own]})


def member(pid: int, ppid: int, of: int, **more: Any) -> dict[str, Any]:
    return process(pid, ppid, session=of, pgrp=of, **more)


LAUNCHER = process(10, 1, RUN)
SERVER = member(11, 10, 10, run=RUN)
LOGIN = process(10, 1, RUN, cgroup="/u/session-3.scope")
SCOPE: dict[str, Any] = {"cgroup": "/u/run-9.scope"}
TITLE: dict[str, Any] = {"cmdline": ["sglang::scheduler_TP0"], "wiped": True}

CASES: dict[str, tuple[list[dict[str, Any]], list[Launch], dict[int, str]]] = {
    "launcher and server": ([LAUNCHER, SERVER], [HERE], {10: "launcher of run r1", 11: "names run r1"}),
    "a launcher started by hand": ([process(10, 5)], [HERE], {10: "launcher of run r1"}),
    "its pid is another one's by now": ([process(10, 1, start_ticks=99)], [HERE], {}),
    "its pid in another boot": ([process(10, 1)], [Launch(RUN, 10, 10, "before")], {}),
    "wiped, in the session": ([LAUNCHER, member(12, 1, 10, **TITLE)], [HERE], {10: "", 12: "session of pid 10"}),
    "wiped, in the session of a launcher that is gone": (
        [SERVER, member(12, 1, 10, **TITLE)], [HERE], {11: "names run", 12: "launcher, pid 10, which is gone"},
    ),
    "the launcher is gone, and nobody known is in the session": ([member(12, 1, 10, **TITLE)], [HERE], {}),
    "the session's number is another one's by now": (
        [process(10, 1, start_ticks=99), process(11, 1, RUN), member(12, 10, 10)], [HERE], {11: "names run"},
    ),
    "the launcher is a zombie": (
        [process(10, 1, RUN, state="Z"), SERVER, member(12, 1, 10)], [HERE], {11: "", 12: "which is gone"},
    ),
    "a child in a session of its own, wiped": ([SERVER, process(13, 11, **TITLE)], [], {11: "", 13: "child of pid 11"}),
    "a grandchild": ([SERVER, process(13, 11), process(14, 13)], [], {11: "", 13: "", 14: "child of pid 13"}),
    "a child in our process group": (
        [process(11, 1, RUN, session=5), process(12, 1, session=5, pgrp=11)], [], {11: "", 12: "group of pid 11"},
    ),
    "adopted, in a session of its own, wiped, and the log is its": (
        [process(14, 1, writes=LOG, **TITLE)], [], {14: f"writes to {LOG[0]}"},
    ),
    "adopted and wiped, and the log that was its is removed": (
        [process(14, 1, writes=[f"{LOG[0]} (deleted)"], **TITLE)], [], {14: f"writes to {LOG[0]}"},
    ),
    "one that writes to the log with its own environment": ([process(14, 1, writes=LOG)], [], {}),
    "a title and no more": ([process(14, 1, **TITLE)], [HERE], {}),
    "one that writes to a log that is not the server's": ([process(14, 1, writes=[f"{RUN}/x.log"], **TITLE)], [], {}),
    "another deployment's": ([process(14, 1, OTHER)], [HERE], {}),
    "another deployment's, started from within": ([SERVER, process(14, 11, OTHER)], [], {11: ""}),
    "a folder that begins as ours": ([process(14, 1, f"{RUNS}-old/r1")], [], {}),
    "an environment that may not be read": ([process(14, 1, None)], [], {}),
    "who keeps the log short": (
        [LAUNCHER, process(12, 10, writes=[f"{RUN}/logcap.log"]), process(13, 10)], [HERE], {10: "", 13: "child of"},
    ),
    "a zombie": ([LAUNCHER, process(12, 10, RUN, state="Z")], [], {10: ""}),
    "a zombie with threads that live": ([process(12, 1, RUN, state="Z", threads=3)], [], {12: "names run"}),
    "our own connection, though it bears the mark": (
        [SERVER, process(70, 1, RUN), process(80, 70, RUN), process(81, 80, RUN)], [], {11: ""},
    ),
    "wiped, in a scope that the run has made": (
        [LOGIN, process(11, 1, RUN, **SCOPE), process(14, 1, **SCOPE, **TITLE)], [HERE],
        {10: "", 11: "", 14: "/u/run-9.scope, which the run has made"},
    ),
    "wiped, in the scope of the login that launched it": (  # a hook's server, or one that was started by hand
        [LOGIN, member(11, 10, 10, run=RUN, cgroup=LOGIN["cgroup"]), process(14, 1, cgroup=LOGIN["cgroup"], **TITLE)],
        [HERE], {10: "", 11: ""},
    ),
    "wiped, in a scope that may be a login's: its launcher is gone": (
        [process(11, 1, RUN, **SCOPE), process(14, 1, **SCOPE, **TITLE)], [HERE], {11: ""},
    ),
    "not wiped, in a scope that the run has made": (
        [LOGIN, process(11, 1, RUN, **SCOPE), process(14, 1, **SCOPE)], [HERE], {10: "", 11: ""},
    ),
    "wiped, in the control group that all are in": ([process(11, 1, RUN), process(14, 1, **TITLE)], [], {11: ""}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_each_that_is_ours_is_known_by_a_proof_and_nobody_else_is(case: str) -> None:
    living, launches, told = CASES[case]
    if case.startswith("our own"):
        answer = {"boot_id": "now", "uptime": 100.0, "ticks_per_second": 100, "asked_by": 81, "processes": living}
        found = proofs(RUNS, processes.parse(answer), launches)
    else:
        found = proofs(RUNS, table(*living), launches)
    assert [process.pid for process in found] == [*told]
    assert [said in why for said, why in zip(told.values(), found.values(), strict=True)] == [True] * len(told), found


BEFORE = [
    (process(13, 1, **TITLE), {13: "it was known before", 14: "it is a child of pid 13"}),  # its parent has ended
    (process(13, 1, start_ticks=99, **TITLE), {}),
    (process(13, 1, state="Z"), {}),
]


@pytest.mark.parametrize(("now", "told"), BEFORE)
def test_who_was_known_stays_so_when_the_one_that_proved_it_has_ended(
    now: dict[str, Any], told: dict[int, str]
) -> None:
    ours = owned(RUNS, table(LAUNCHER, process(13, 10, **TITLE)), [HERE])
    known = [(process.pid, process.start_ticks) for process in ours]
    found = proofs(RUNS, table(now, process(14, 13)), [HERE], known)
    assert {process.pid: why for process, why in found.items()} == told


@pytest.mark.parametrize("folder", [RUNS, RUN])
def test_a_folder_is_one_runs_or_that_of_all_runs_of_a_deployment(folder: str) -> None:
    found = owned(folder, table(process(11, 1, RUN), process(12, 1, f"{RUNS}/r2")))
    assert [process.pid for process in found] == ([11] if folder == RUN else [11, 12])


def test_a_command_that_runs_below_the_launcher_is_known_to_be_inside() -> None:
    inside = [LAUNCHER, SERVER, process(70, 11), process(80, 70), process(81, 80)]
    answer = {"boot_id": "now", "uptime": 100.0, "ticks_per_second": 100, "asked_by": 81, "processes": inside}
    assert inside_of(processes.parse(answer), [HERE]) == HERE
    assert inside_of(processes.parse(answer), [Launch(RUN, 10, 9, "now")]) is None
    assert inside_of(table(LAUNCHER, SERVER), [HERE]) is None


HEADS = [
    ([LAUNCHER, SERVER, member(12, 11, 10), process(14, 1, RUN)], [11]),  # what outlives the server comes later
    ([SERVER, member(12, 11, 10), process(14, 1, RUN)], [11, 14]),  # nobody knows which of them serves
    ([LAUNCHER], [10]),
]


@pytest.mark.parametrize(("living", "expected"), HEADS)
def test_who_ends_the_others_in_order_hears_it_first(living: list[dict[str, Any]], expected: list[int]) -> None:
    ours = owned(RUNS, table(*living), [HERE])
    assert [process.pid for process in heads(ours, [HERE])] == expected


def test_a_zombie_is_told_with_the_parent_that_has_not_noticed() -> None:
    before = owned(RUNS, table(LAUNCHER, SERVER))
    after = table(process(10, 1, RUN, state="Z"), member(11, 10, 10, run=RUN, state="Z", start_ticks=99))
    ((dead, parent),) = zombies(before, after)
    assert (dead.pid, parent) == (10, None), "11 is another one by now"


def test_a_group_is_killed_whole_only_where_all_its_members_are_meant() -> None:
    living = table(LAUNCHER, SERVER, process(20, 1, RUN), member(21, 1, 20))
    targets = [process for process in living.all if process.pid in (10, 11, 20)]
    assert ending.whole_groups(targets, living) == {10}
