"""The program that exchanges a draft's weights, on the fake SGLang: all moments at which it can be killed, all ways in
which a server may not do as it is told, and what it does with what it is told.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import fakes, handing, marked
from tests.handing import CHECK, KILLED, PAUSE, REFUSED, RESUME, SMALL, UPDATE, Drafts, Point, serves_on, through
from tests.hotswap import KEY, Server, Stop, between, ended
from tests.launches import Running


@pytest.fixture(scope="module")
def drafts(tmp_path_factory: pytest.TempPathFactory) -> Drafts:
    """`fc.weight`, which is the first piece, is the same in the dead and in the good one."""
    folder = tmp_path_factory.mktemp("drafts")

    def same_fc(tensors: marked.Tensors) -> None:
        tensors["fc.weight"][1][:16] = bytes(16)

    lengths = {"good": 3.5, "dead": 1.0, "other": 2.0}
    made = {
        name: marked.draft(folder / name, accepts, number, change=same_fc)
        for number, (name, accepts) in enumerate(lengths.items())
    }
    return Drafts(made)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, drafts: Drafts) -> Iterator[Server]:
    """It was started with the dead draft."""
    folder = tmp_path_factory.mktemp("server")
    words = ("--speculative-draft-model-path", str(drafts["dead"]), "--admin-api-key", KEY)
    with fakes.starting(folder) as start:
        made = start(*words, version="0.5.23", lifetime=900.0).says(fakes.READY)
        found = Server.of(Running(made.process, made.port), folder)
        drafts.told["dead"] = found.checksums()
        yield found


@pytest.fixture
def dead(server: Server, drafts: Drafts) -> Iterator[Server]:
    """Serving the dead draft, and the checksums of all of them known; whatever a test leaves is mended."""
    drafts.bring(server, "dead")
    yield server
    server.mend()


@pytest.mark.parametrize("point", KILLED, ids=lambda point: f"{point[0][1:]}-{point[1]}-{'after' * point[2]}")
def test_killed_it_leaves_the_old_the_new_or_a_mark(dead: Server, drafts: Drafts, point: Point) -> None:
    handing.killed(dead, drafts, point)


@pytest.mark.parametrize("where", [(PAUSE, 1), (UPDATE, 3), (CHECK, 2)], ids=lambda where: where[0][1:])
def test_told_to_end_it_puts_the_old_draft_back(dead: Server, drafts: Drafts, where: tuple[str, int]) -> None:
    handing.told_to_end(dead, drafts, *where)


@pytest.mark.parametrize(("path", "nth", "way", "obeyed"), REFUSED)
def test_refused_once_the_old_draft_serves_on(
    dead: Server, drafts: Drafts, path: str, nth: int, way: str, obeyed: bool
) -> None:
    handing.refused(dead, drafts, path, nth, way, obeyed)


def test_where_it_cannot_be_put_back_nobody_is_answered(dead: Server, drafts: Drafts) -> None:
    handing.cannot_be_put_back(dead, drafts)


def test_where_it_does_not_go_on_the_mark_stays(dead: Server, drafts: Drafts) -> None:
    with between(dead, Stop(RESUME, becomes="500")) as port:
        told = dead.swapped(through(port, dead, drafts))
    assert (told["outcome"], "does not go on" in told["why"]) == ("torn", True), told["why"]
    assert (drafts.is_loaded(dead), dead.marker.exists(), dead.paused()) == ("good", True, True)


def test_a_lock_that_is_lost_ends_it_where_it_stands(dead: Server, drafts: Drafts) -> None:
    stop = Stop(UPDATE, 4)
    with between(dead, stop, holds=True) as port, dead.swapping(through(port, dead, drafts, **SMALL)) as program:
        assert stop.there.wait(60)
        (dead.folder / "lock").write_text("theirs\n")
        stop.free.set()
        assert ended(program)["outcome"] == "lapsed"
    assert (drafts.is_loaded(dead), dead.marker.exists(), dead.paused()) == ("a mixture", True, True)
    assert dead.left_in_memory() == []


def test_it_comes_to_its_end_though_who_asked_for_it_is_gone(dead: Server, drafts: Drafts) -> None:
    stop = Stop(UPDATE, 4)
    with between(dead, stop, holds=True) as port, dead.swapping(through(port, dead, drafts, **SMALL)) as program:
        assert stop.there.wait(60)
        (dead.folder / "lock").write_text("")  # as the holder of a lock leaves it when its client dies
        stop.free.set()
        assert ended(program)["outcome"] == "swapped"
    assert (drafts.is_loaded(dead), dead.marker.exists(), dead.paused()) == ("good", False, False)
    assert json.loads((dead.folder / "weights.json").read_text())["checksums"] == drafts.told["good"]


def test_other_checksums_than_those_of_a_start_are_not_let_pass(dead: Server, drafts: Drafts) -> None:
    expected = {name: "0" * 16 if "fc" in name else told for name, told in drafts.told["good"].items()}
    told = dead.swap(drafts["good"], drafts["dead"], expected=expected)
    assert (told["outcome"], "1 checksums" in told["why"], "fc" in told["why"]) == ("kept", True, True), told
    serves_on(dead, drafts)


def test_weights_that_somebody_else_has_exchanged_are_left_as_they_are(dead: Server, drafts: Drafts) -> None:
    told = dead.swap(drafts["good"], drafts["other"], loaded=drafts.told["other"])
    assert (told["outcome"], told["bytes"], "somebody else" in told["why"]) == ("kept", 0, True), told
    serves_on(dead, drafts)


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
    serves_on(dead, drafts)
