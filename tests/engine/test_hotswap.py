"""The program that exchanges a draft's weights, on the real SGLang: a dead draft becomes a good one without a restart.

One server for all of it, with the telling pair's draft. A program that dies, a server that refuses or gives no answer,
a lock that is lost: whatever becomes of a hand-over, the old draft serves wholly, or the new one wholly, or nobody is
answered and the mark says so.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import hotswap, places
from tests.hotswap import Server, Stop, between, ended, serving
from tests.installed import needs, overlay
from tests.project import TELLING, until
from tests.telling import PROMPTS

pytestmark = [pytest.mark.engine, pytest.mark.sglang, pytest.mark.timeout(600)]

GOOD = TELLING / "draft"
LENGTHS = {"dead": (1.0, 1.03), "good": (3.5, 4.0), "other": (1.4, 1.9)}
PAUSE, CHECK, BEGIN = "/pause_generation", "/weights_checker", "/begin_weight_update"
UPDATE, END, FLUSH, RESUME = "/update_weights_from_tensor", "/end_weight_update", "/flush_cache", "/continue_generation"
SMALL = {"piece": 300_000}  # bytes: five pieces; the good and the dead draft differ from the second one on


@dataclass
class Drafts:
    """`dead`, `good` and `other` ones, alike in all but their values, and what a server tells of each."""

    paths: dict[str, Path]
    told: dict[str, dict[str, str]]

    def __getitem__(self, name: str) -> Path:
        return self.paths[name]

    def is_loaded(self, server: Server) -> str:
        """Which of them, or `a mixture`."""
        checksums = server.checksums()
        return next((name for name, told in self.told.items() if told == checksums), "a mixture")


@pytest.fixture(scope="module")
def drafts(tmp_path_factory: pytest.TempPathFactory) -> Drafts:
    folder = tmp_path_factory.mktemp("drafts")
    faults = {"dead": "zero-layer", "other": "swapped-norms"}
    made = {name: places.broken(fault, folder, GOOD) for name, fault in faults.items()}
    return Drafts({"good": GOOD, **made}, {})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, drafts: Drafts) -> Iterator[Server]:
    """It was started with the dead draft."""
    needs("sglang-cpu")
    with serving(overlay("sglang-cpu"), tmp_path_factory.mktemp("server"), drafts["dead"]) as made:
        drafts.told["dead"] = made.checksums()
        yield made


@pytest.fixture
def dead(server: Server, drafts: Drafts) -> Iterator[Server]:
    """Serving the dead draft, and checksums of the good one known; whatever a test leaves is mended."""
    if "good" not in drafts.told:
        told = server.swap(drafts["good"], drafts["dead"])
        assert (told["outcome"], told["why"]) == ("swapped", "")
        drafts.told["good"] = told["checksums"]
    _bring(server, drafts, "dead")
    yield server
    if server.running.process.poll() is None:
        server.mend()


def _bring(server: Server, drafts: Drafts, wanted: str) -> None:
    """By way of a draft that is not loaded, since one that changes nothing proves nothing."""
    if drafts.is_loaded(server) == wanted:
        return
    for name in ("other", wanted):
        told = server.swap(drafts[name], drafts["good"])
        assert (told["outcome"], told["why"]) == ("swapped", "")
        drafts.told.setdefault(name, told["checksums"])
    assert drafts.is_loaded(server) == wanted


def test_dead_good_other_dead(server: Server, drafts: Drafts) -> None:
    """Each with the accept length that a start gives it, and the same answers; back at the first, the same weights."""
    pid, texts = server.running.child("sglang::scheduler"), []
    before = "dead"
    for name in ("good", "other", "dead"):
        told = server.swap(drafts[name], drafts[before])
        assert (told["outcome"], told["why"], told["bytes"]) == ("swapped", "", 1_050_624)
        assert told["before"] == drafts.told[before]
        assert told["checksums"] not in drafts.told.values() or name == "dead"
        drafts.told.setdefault(name, told["checksums"])
        text, length = server.measured()
        texts.append(text)
        assert LENGTHS[name][0] <= length <= LENGTHS[name][1], (name, length)
        before = name
    assert texts[0] == texts[1] == texts[2]
    assert told["checksums"] == drafts.told["dead"] == server.checksums()
    assert (server.folder / "current").readlink() == Path("runs/run-2")
    assert (server.left_in_memory(), server.marker.exists()) == ([], False)
    assert server.running.child("sglang::scheduler") == pid


def test_in_pieces_it_is_the_same(dead: Server, drafts: Drafts) -> None:
    told = dead.swap(drafts["good"], drafts["dead"], expected=drafts.told["good"], **SMALL)
    assert (told["outcome"], told["why"], told["checksums"]) == ("swapped", "", drafts.told["good"])


def test_requests_that_run_meanwhile_are_answered_as_ever(dead: Server, drafts: Drafts) -> None:
    """Those that began before it, under the old draft, and those that come while it waits, under the new one."""
    alone = {prompt: dead.said(prompt)[0] for prompt in PROMPTS}
    answers: list[tuple[str, str]] = []
    threads = [
        threading.Thread(target=lambda prompt=prompt: answers.append((prompt, dead.said(prompt)[0])))
        for prompt in PROMPTS
    ]
    stop = Stop(UPDATE)
    with between(dead, stop, holds=True) as port, dead.swapping(_through(port, dead, drafts)) as program:
        for thread in threads[:4]:
            thread.start()
        assert stop.there.wait(60)
        for thread in threads[4:]:
            thread.start()
        stop.free.set()
        assert ended(program)["outcome"] == "swapped"
        for thread in threads:
            thread.join(120)
    assert (len(answers), dict(answers)) == (len(PROMPTS), alone)


def _through(port: int, server: Server, drafts: Drafts, **more: Any) -> dict[str, Any]:
    """The good draft for the dead one, by way of a proxy."""
    return server.request(drafts["good"], drafts["dead"], url=server.url(port), **more)


# ---- the program dies --------------------------------------------------------------------------------------------

# (where it is killed, whether the server obeyed that): (what is loaded then, whether it is paused)
KILLED = {
    (PAUSE, 1, False): ("dead", False),
    (PAUSE, 1, True): ("dead", True),
    (CHECK, 1, True): ("dead", True),
    (BEGIN, 1, True): ("dead", True),
    (UPDATE, 1, False): ("dead", True),
    (UPDATE, 3, True): ("a mixture", True),
    (UPDATE, 5, True): ("good", True),
    (END, 1, False): ("good", True),
    (END, 1, True): ("good", True),
    (CHECK, 2, True): ("good", True),
    (FLUSH, 1, True): ("good", True),
    (RESUME, 1, False): ("good", True),
    (RESUME, 1, True): ("good", False),
}


@pytest.mark.parametrize("point", KILLED, ids=lambda point: f"{point[0][1:]}-{point[1]}-{'after' * point[2]}")
def test_killed_it_leaves_the_old_the_new_or_a_mark(dead: Server, drafts: Drafts, point: tuple[str, int, bool]) -> None:
    path, nth, obeyed = point
    loaded, paused = KILLED[point]
    stop = Stop(path, nth, obeyed=obeyed)
    with between(dead, stop, holds=True) as port, dead.swapping(_through(port, dead, drafts, **SMALL)) as program:
        assert stop.there.wait(60)
        program.kill()
        program.wait()
        stop.becomes = "drop"
    assert (drafts.is_loaded(dead), dead.paused()) == (loaded, paused)
    assert dead.marker.exists()
    left = dead.left_in_memory()
    assert len(left) == (path == UPDATE), left

    # the next one finds the mark, changes nothing, and takes away what lies in the memory
    told = dead.swap(drafts["good"], drafts["dead"])
    assert (told["outcome"], "broke off" in told["why"], dead.left_in_memory()) == ("torn", True, [])
    assert (drafts.is_loaded(dead), dead.marker.exists()) == (loaded, True)


@pytest.mark.parametrize("where", [(PAUSE, 1), (UPDATE, 3), (CHECK, 2)], ids=lambda where: where[0][1:])
def test_told_to_end_it_puts_the_old_draft_back(dead: Server, drafts: Drafts, where: tuple[str, int]) -> None:
    stop = Stop(*where, obeyed=True)
    with between(dead, stop, holds=True) as port, dead.swapping(_through(port, dead, drafts, **SMALL)) as program:
        assert stop.there.wait(60)
        program.terminate()
        told = ended(program)
    assert (told["outcome"], "SIGTERM" in told["why"]) == ("kept", True), told
    _serves_on(dead, drafts)


def _serves_on(server: Server, drafts: Drafts) -> None:
    """The old draft, with nothing left of the attempt."""
    assert drafts.is_loaded(server) == "dead"
    assert (server.marker.exists(), server.left_in_memory(), server.paused()) == (False, [], False)


# ---- the server does not do as it is told ------------------------------------------------------------------------

WAYS = ("400", "500", "hang", "drop")
QUESTIONS = [(PAUSE, 1), (CHECK, 1), (BEGIN, 1), (UPDATE, 1), (UPDATE, 3), (END, 1), (CHECK, 2), (FLUSH, 1)]
IN_CI = {(PAUSE, 1, "hang"), (BEGIN, 1, "500"), (UPDATE, 3, "500"), (END, 1, "drop"), (CHECK, 2, "400")}
REFUSED = [
    pytest.param(path, nth, way, obeyed, marks=[] if (path, nth, way) in IN_CI and obeyed else [pytest.mark.full])
    for path, nth in QUESTIONS
    for way in WAYS
    for obeyed in (False, True)
]


@pytest.mark.parametrize(("path", "nth", "way", "obeyed"), REFUSED)
def test_refused_once_the_old_draft_serves_on(
    dead: Server, drafts: Drafts, path: str, nth: int, way: str, obeyed: bool
) -> None:
    """Whether it had obeyed or not: the answer says otherwise, or none comes."""
    stop = Stop(path, nth, obeyed=obeyed, becomes=way)
    with between(dead, stop) as port:
        told = dead.swapped(_through(port, dead, drafts, patience=1.0, **SMALL))
    assert (told["outcome"], path in told["why"]) == ("kept", True), told["why"]
    assert told["checksums"] is None
    _serves_on(dead, drafts)


def test_where_it_cannot_be_put_back_nobody_is_answered(dead: Server, drafts: Drafts) -> None:
    stop = Stop(UPDATE, 2, becomes="500", lasts=True)
    with between(dead, stop) as port:
        told = dead.swapped(_through(port, dead, drafts, **SMALL))
    assert (told["outcome"], "could not be taken back" in told["why"]) == ("torn", True), told["why"]
    assert (dead.marker.exists(), dead.paused(), dead.left_in_memory()) == (True, True, [])


def test_where_it_does_not_go_on_the_mark_stays(dead: Server, drafts: Drafts) -> None:
    with between(dead, Stop(RESUME, becomes="500")) as port:
        told = dead.swapped(_through(port, dead, drafts))
    assert (told["outcome"], "does not go on" in told["why"]) == ("torn", True), told["why"]
    assert (drafts.is_loaded(dead), dead.marker.exists(), dead.paused()) == ("good", True, True)


def test_a_lock_that_is_lost_ends_it_where_it_stands(dead: Server, drafts: Drafts) -> None:
    stop = Stop(UPDATE, 4)
    with between(dead, stop, holds=True) as port, dead.swapping(_through(port, dead, drafts, **SMALL)) as program:
        assert stop.there.wait(60)
        (dead.folder / "lock").write_text("theirs\n")
        stop.free.set()
        assert ended(program)["outcome"] == "lapsed"
    assert (drafts.is_loaded(dead), dead.marker.exists(), dead.paused()) == ("a mixture", True, True)
    assert dead.left_in_memory() == []


# ---- what was loaded is not what was meant -----------------------------------------------------------------------


def test_other_checksums_than_those_of_a_start_are_not_let_pass(dead: Server, drafts: Drafts) -> None:
    expected = {name: "0" * 16 if "fc" in name else told for name, told in drafts.told["good"].items()}
    told = dead.swap(drafts["good"], drafts["dead"], expected=expected)
    assert (told["outcome"], "1 checksums" in told["why"], "fc" in told["why"]) == ("kept", True, True), told
    _serves_on(dead, drafts)


def test_tensors_that_change_nothing_were_dropped(dead: Server, drafts: Drafts) -> None:
    told = dead.swap(drafts["dead"], drafts["good"])  # the dead one is loaded, whoever says otherwise
    assert (told["outcome"], "dropped" in told["why"]) == ("torn", True), told
    assert (dead.marker.exists(), dead.paused()) == (True, True)


def test_the_same_draft_again_changes_nothing(dead: Server, drafts: Drafts, tmp_path: Path) -> None:
    again = shutil.copytree(drafts["dead"], tmp_path / "again")
    told = dead.swap(again, drafts["dead"])
    assert (told["outcome"], told["checksums"]) == ("swapped", drafts.told["dead"])


def test_links_that_cannot_be_made_take_all_of_it_back(dead: Server, drafts: Drafts) -> None:
    first, second = dead.folder / "first", dead.folder / "missing" / "second"
    told = dead.swap(drafts["good"], drafts["dead"], links=[["a", str(first)], ["b", str(second)]])
    assert (told["outcome"], "second" in told["why"]) == ("kept", True), told
    assert not os.path.lexists(first)
    _serves_on(dead, drafts)


@pytest.mark.parametrize(("keys", "outcome"), [(["", "wrong", hotswap.KEY], "swapped"), (["wrong"], "kept")])
def test_the_key_that_is_taken_is_found(dead: Server, drafts: Drafts, keys: list[str], outcome: str) -> None:
    told = dead.swap(drafts["good"], drafts["dead"], keys=keys)
    assert (told["outcome"], ("API key" in told["why"])) == (outcome, outcome == "kept"), told
    assert (dead.marker.exists(), dead.paused()) == (False, False)


# ---- the last of its server --------------------------------------------------------------------------------------


def test_a_server_that_dies_of_it_is_told(dead: Server, drafts: Drafts) -> None:
    stop = Stop(UPDATE)
    with between(dead, stop, holds=True) as port, dead.swapping(_through(port, dead, drafts)) as program:
        assert stop.there.wait(60)
        os.kill(dead.running.child("sglang::scheduler"), 9)
        until(lambda: dead.running.process.poll() is not None, 60, "its end")
        stop.free.set()
        told = ended(program)
    assert (told["outcome"], "cannot be reached" in told["why"] or "broke off" in told["why"]) == ("torn", True), told
    assert (dead.marker.exists(), dead.left_in_memory()) == (True, [])


@pytest.mark.full
def test_two_ranks(tmp_path: Path, drafts: Drafts) -> None:
    """Both map the same pieces, and both tell what they have loaded."""
    needs("sglang-cpu")
    with serving(overlay("sglang-cpu"), tmp_path / "server", drafts["dead"], ranks=2) as server:
        cold = server.checksums()
        assert {name.rpartition("@")[2] for name in cold} == {"0", "1"}
        for draft, before in (("good", "dead"), ("other", "good"), ("dead", "other")):
            told = server.swap(drafts[draft], drafts[before], **SMALL)
            assert (told["outcome"], told["why"]) == ("swapped", "")
            length = server.measured()[1]
            assert LENGTHS[draft][0] <= length <= LENGTHS[draft][1], (draft, length)
        assert told["checksums"] == cold
        assert server.left_in_memory() == []
