"""The program that exchanges a draft's weights, on the real SGLang: a dead draft becomes a good one without a restart.

One server for all of it, with the telling pair's draft. What is not in CI here is there on the fake one
(tests/run/test_handing_over.py).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import handing, hotswap, places
from tests.handing import CHECK, END, KILLED, PAUSE, REFUSED, RESUME, SMALL, UPDATE, Drafts, through
from tests.hotswap import Server, Stop, between, ended, serving
from tests.installed import needs, overlay
from tests.project import TELLING, until
from tests.telling import PROMPTS

pytestmark = [pytest.mark.engine, pytest.mark.sglang, pytest.mark.timeout(600)]

GOOD = TELLING / "draft"
LENGTHS = {"dead": (1.0, 1.03), "good": (3.5, 4.0), "other": (1.4, 1.9)}
IN_CI = {
    *((PAUSE, 1, True), (UPDATE, 3, True), (CHECK, 2, True), (RESUME, 1, True)),
    *((PAUSE, 1, "hang", True), (UPDATE, 3, "500", True), (END, 1, "drop", True)),
}


def some(cases):
    """A matrix of which a few cases are in CI."""
    return [pytest.param(*case, marks=[] if case in IN_CI else [pytest.mark.full]) for case in cases]


@pytest.fixture(scope="module")
def drafts(tmp_path_factory: pytest.TempPathFactory) -> Drafts:
    folder = tmp_path_factory.mktemp("drafts")
    faults = {"dead": "zero-layer", "other": "swapped-norms"}
    return Drafts({"good": GOOD, **{name: places.broken(fault, folder, GOOD) for name, fault in faults.items()}})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, drafts: Drafts) -> Iterator[Server]:
    """It was started with the dead draft."""
    needs("sglang-cpu")
    with serving(overlay("sglang-cpu"), tmp_path_factory.mktemp("server"), drafts["dead"]) as made:
        drafts.told["dead"] = made.checksums()
        yield made


@pytest.fixture
def dead(server: Server, drafts: Drafts) -> Iterator[Server]:
    """Serving the dead draft, and the checksums of all of them known; whatever a test leaves is mended."""
    drafts.bring(server, "dead")
    yield server
    if server.running.process.poll() is None:
        server.mend()


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
    with between(dead, stop, holds=True) as port, dead.swapping(through(port, dead, drafts)) as program:
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


@pytest.mark.parametrize(("path", "nth", "obeyed"), some(KILLED))
def test_killed_it_leaves_the_old_the_new_or_a_mark(
    dead: Server, drafts: Drafts, path: str, nth: int, obeyed: bool
) -> None:
    handing.killed(dead, drafts, (path, nth, obeyed))


def test_told_to_end_it_puts_the_old_draft_back(dead: Server, drafts: Drafts) -> None:
    handing.told_to_end(dead, drafts, UPDATE, 3)


@pytest.mark.parametrize(("path", "nth", "way", "obeyed"), some(REFUSED))
def test_refused_once_the_old_draft_serves_on(
    dead: Server, drafts: Drafts, path: str, nth: int, way: str, obeyed: bool
) -> None:
    handing.refused(dead, drafts, path, nth, way, obeyed)


def test_where_it_cannot_be_put_back_nobody_is_answered(dead: Server, drafts: Drafts) -> None:
    handing.cannot_be_put_back(dead, drafts)


@pytest.mark.parametrize(("keys", "outcome"), [(["", "wrong", hotswap.KEY], "swapped"), (["wrong"], "kept")])
def test_the_key_that_is_taken_is_found(dead: Server, drafts: Drafts, keys: list[str], outcome: str) -> None:
    told = dead.swap(drafts["good"], drafts["dead"], keys=keys)
    assert (told["outcome"], ("API key" in told["why"])) == (outcome, outcome == "kept"), told
    assert (dead.marker.exists(), dead.paused()) == (False, False)


def test_a_server_that_dies_of_it_is_told(dead: Server, drafts: Drafts) -> None:
    stop = Stop(UPDATE)
    with between(dead, stop, holds=True) as port, dead.swapping(through(port, dead, drafts)) as program:
        assert stop.there.wait(60)
        os.kill(dead.running.child("sglang::scheduler"), 9)
        until(lambda: dead.running.process.poll() is not None, 60, "its end")
        stop.free.set()
        told = ended(program)
    assert (told["outcome"], "cannot be reached" in told["why"] or "broke off" in told["why"]) == ("torn", True), told
    assert (dead.marker.exists(), dead.left_in_memory()) == (True, [])


@pytest.mark.full
@pytest.mark.parametrize(("version", "ranks"), [("sglang-0.5.21", 1), ("sglang-0.5.22", 1), ("sglang-cpu", 2)], ids=str)
def test_of_older_versions_and_two_ranks(tmp_path: Path, drafts: Drafts, version: str, ranks: int) -> None:
    """Both ranks map the same pieces, and both tell what they have loaded."""
    with serving(overlay(version), tmp_path / "server", drafts["dead"], ranks=ranks) as server:
        cold = server.checksums()
        assert {name.partition("@")[2] for name in cold} == ({"0", "1"} if ranks > 1 else {""})
        for draft, before in (("good", "dead"), ("other", "good"), ("dead", "other")):
            told = server.swap(drafts[draft], drafts[before], **SMALL)
            assert (told["outcome"], told["why"]) == ("swapped", ""), told
            length = server.measured()[1]
            assert LENGTHS[draft][0] <= length <= LENGTHS[draft][1], (draft, length)
        assert told["checksums"] == cold
        assert server.left_in_memory() == []
