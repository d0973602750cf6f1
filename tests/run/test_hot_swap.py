"""The draft is exchanged in the running server, by the command line: what a user sees, and what serves afterwards.

A fake SGLang shows which draft is loaded by the accept length that it serves, and a mixture of two by its words. All
the time a client asks it, which must never hear a mixture.
"""

from __future__ import annotations

import getpass
import signal
from collections.abc import Iterator
from pathlib import Path
from subprocess import Popen

import pytest

from tests import marked
from tests.project import Done, until, with_run
from tests.swapping import Look, Stand

KEPT = "the draft was not exchanged; the old one serves on"
TORN = "the exchange of the draft broke off: the server is paused, what is loaded is not known"
DIED = "the server died while its draft was exchanged"


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """One server for all of them; both drafts were started cold once."""
    with Stand.up(tmp_path_factory.mktemp("swaps")) as made:
        made.restart("--cold")
        yield made


@pytest.fixture(autouse=True)
def healthy(stand: Stand) -> Iterator[None]:
    """Faults and breakpoints are of one test, and each finds one of the two drafts served."""
    yield
    stand.release()
    stand.faults()
    if not stand.serves():
        stand.passes("up", "profile=fake", "-y")


def exchanged(before: Look, after: Look) -> tuple[bool, bool, bool]:
    """(the same server, another run, the other draft)."""
    return before.pid == after.pid, before.run != after.run, before.accepts != after.accepts


SWAPPED, UNCHANGED, RESTARTED = (True, True, True), (True, False, False), (False, True, True)


def test_the_other_draft_comes_into_the_running_server_and_goes_back(stand: Stand) -> None:
    before = stand.look()
    with stand.listening():
        done = stand.restart()
        swapped = stand.look()
        back = stand.passes("rollback", "profile=fake")

    assert exchanged(before, swapped) == SWAPPED
    assert "the draft is exchanged while the server runs" in done.err
    assert "requests waited" in done.err
    assert exchanged(swapped, stand.look()) == SWAPPED
    assert f"in the server of run {stand.launched.name}" in back.err
    assert stand.failed == 0, "requests wait, and none is refused"


def test_status_and_up_see_the_draft_that_is_loaded(stand: Stand) -> None:
    stand.restart()
    now, draft = stand.look(), stand.served

    row = stand.project.status()
    assert (row["run"], row["state"], row["pid"]) == (now.run, "serving", str(now.pid))
    done = stand.passes("up", "profile=fake", f"draft.path={draft}")
    assert "launch" not in done.err
    assert stand.look() == now


# ---- faults of the server

# (faults, options, what came of it, the words of it)
FAULTS: dict[str, tuple[dict[str, str], str, tuple[bool, bool, bool], tuple[str, ...]]] = {
    "it does not pause": ({"pause": "refuse 1"}, "--hot", UNCHANGED, (KEPT, "pause_generation answered 400: as asked")),
    "it takes half of them": ({"update": "half 1"}, "--hot", UNCHANGED, (KEPT, "Please discard the whole weights")),
    "it takes them, and does not say so": ({"update": "then-drop 1"}, "--hot", UNCHANGED, (KEPT, "broke off")),
    "it drops a tensor": ({"update": "lose 1"}, "--hot", UNCHANGED, (KEPT, "model.fc.weight")),
    "it says done, and does nothing": ({"update": "ignore"}, "--hot", UNCHANGED, (KEPT,)),
    "one rank tells another checksum": ({"check": "lie 2"}, "--hot", UNCHANGED, (KEPT, "1 checksums are not those")),
    "it does not flush its cache": ({"flush": "refuse 1"}, "--hot", UNCHANGED, (KEPT, "/flush_cache")),
    "without --hot it restarts": ({"update": "half 1"}, "", RESTARTED, ("it restarts: ", KEPT)),
    "it takes nothing back": ({"update": "half"}, "--hot", RESTARTED, (TORN, "it could not be taken back")),
    "it does not go on": ({"continue": "refuse"}, "--hot", RESTARTED, (TORN, "the server does not go on")),
    "it dies of the weights": ({"update": "die"}, "--hot", RESTARTED, ("it restarts: ",)),
    "it dies when it goes on": ({"continue": "then-die"}, "", RESTARTED, ("it restarts: ",)),
}  # fmt: skip


# What the program does of these is in CI by itself (tests/run/test_handing_over.py).
SELDOM = (
    "it does not pause",
    "it says done, and does nothing",
    "one rank tells another checksum",
    "it does not flush its cache",
)


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.full] * (name in SELDOM)) for name in FAULTS])
def test_after_a_fault_one_whole_draft_serves(stand: Stand, name: str) -> None:
    faults, option, became, words = FAULTS[name]
    before, other = stand.look(), stand.other
    stand.faults(**faults)
    with stand.listening():
        done = stand.run("restart", "profile=fake", "--ckpt", str(stand.drafts[other]), *option.split())

    assert exchanged(before, stand.look()) == became, done.err
    assert done.code == (7 if became == UNCHANGED else 0), done.err
    assert [word for word in words if word not in " ".join(done.err.split())] == []


def test_a_tensor_that_was_dropped_is_told_of_a_draft_that_was_never_started(stand: Stand, tmp_path: Path) -> None:
    """No checksums of a cold start are there: each parameter is held against what was sent."""
    before, draft = stand.look(), marked.draft(tmp_path / "draft", 3.5, 9)
    stand.faults(update="lose 1")
    with stand.listening():
        done = stand.run("restart", "profile=fake", "--ckpt", str(draft), "--hot")

    assert (done.code, KEPT in " ".join(done.err.split()), stand.look()) == (7, True, before), done.err


# ---- kills

MOMENTS = [
    "pause",
    "update done",
    pytest.param("end", marks=pytest.mark.full),
    "continue",
]  # all of them: tests/run/test_handing_over.py


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_with_its_client_at_each_point_the_same_command_puts_it_right(stand: Stand, moment: str) -> None:
    before, draft = stand.look(), str(stand.drafts[stand.other])
    with stand.listening():
        with stand.held(moment, "restart", "profile=fake", "--ckpt", draft) as client:
            client.kill()
            client.wait()
            stand.kill_exchange()
        stand.passes("restart", "profile=fake", "--ckpt", draft)

    after = stand.look()
    assert after.accepts != before.accepts
    assert stand.leftovers() == []


@pytest.mark.parametrize("moment", ["pause", "update done"])
def test_killed_alone_its_client_restarts_the_server(stand: Stand, moment: str) -> None:
    before, draft = stand.look(), str(stand.drafts[stand.other])
    with stand.listening(), stand.held(moment, "restart", "profile=fake", "--ckpt", draft) as client:
        stand.kill_exchange()
        stand.release()
        done = ended(client)

    assert done.code == 0, done.err
    assert TORN in " ".join(done.err.split())
    assert exchanged(before, stand.look()) == RESTARTED
    assert stand.leftovers() == []


@pytest.mark.parametrize("moment", ["update", "continue done"])
def test_without_its_client_the_exchange_comes_to_its_end(stand: Stand, moment: str) -> None:
    before, draft = stand.look(), str(stand.drafts[stand.other])
    with stand.listening():
        with stand.held(moment, "restart", "profile=fake", "--ckpt", draft) as client:
            client.kill()
            client.wait()
        until(lambda: not stand.exchanges(), 20, "the end of the exchange")
    after = stand.look()
    done = stand.passes("up", "profile=fake", f"draft.path={draft}")

    assert exchanged(before, after) == SWAPPED
    assert ("launch" in done.err, stand.look()) == (False, after)
    assert stand.leftovers() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_client_that_is_told_to_end_leaves_one_whole_draft(stand: Stand, number: signal.Signals) -> None:
    before, draft = stand.look(), str(stand.drafts[stand.other])
    with stand.listening():
        with stand.held("update", "restart", "profile=fake", "--ckpt", draft) as client:
            client.send_signal(number)
            stand.release()
            done = ended(client)
        until(lambda: not stand.exchanges(), 20, "the end of the exchange")

    after = stand.look()
    assert done.code != 0
    assert (before.pid, stand.leftovers()) == (after.pid, [])
    stand.passes("restart", "profile=fake", "--ckpt", draft)
    assert stand.look().accepts != before.accepts


# (where it is, faults, options, what is true then in the client's words, the state that `status` tells)
INTERRUPTED: dict[str, tuple[str, dict[str, str], str, str, str]] = {
    "it takes half of them": ("update", {"update": "half 1"}, "--hot", KEPT, "serving"),
    "it takes nothing back": ("update", {"update": "half"}, "--hot", TORN, "torn"),
    "it does not go on": ("continue", {"continue": "refuse"}, "", TORN, "torn"),
    "it dies of the weights": ("update", {"update": "die"}, "", DIED, "dead"),
}  # fmt: skip


# each costs a start of the server: one of the two torn ones is in CI
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.full] * (name == "it takes nothing back")) for name in INTERRUPTED]
)
def test_ctrl_c_in_an_exchange_that_fails_says_what_is_true_and_leaves_it_so(stand: Stand, name: str) -> None:
    moment, faults, option, words, state = INTERRUPTED[name]
    before, launched, draft = stand.look(), stand.launched.name, str(stand.drafts[stand.other])
    stand.faults(**faults)
    with stand.held(moment, "restart", "profile=fake", "--ckpt", draft, *option.split()) as client:
        client.send_signal(signal.SIGINT)
        until(lambda: "leaves at once" in (stand.project.last / "events.jsonl").read_text(), 30, "it is heard")
        stand.release()
        done = ended(client)

    told = " ".join(done.err.split())
    assert (done.code, f"{words}. Run the command again" in told, f"{words}: " in told) == (130, True, True), done.err
    assert ("no server was touched" in told, "it restarts: " in told) == (False, False), done.err
    row = stand.project.status()
    assert (row["state"], row["run"], row["server"]) == (state, before.run, launched)
    if state == "torn":
        down = stand.passes("down")
        assert ("nothing runs" in down.err, with_run(launched)) == (False, []), down.err


def test_a_second_operator_waits_outside(stand: Stand) -> None:
    before, other = stand.look(), stand.other
    with stand.held("update", "restart", "profile=fake", "--ckpt", str(stand.drafts[other])) as client:
        assert stand.project.status()["state"] != "serving"
        smoke = stand.run("smoke")
        words = f"its draft is exchanged just now, and requests wait: {getpass.getuser()}@"
        assert (smoke.code, words in " ".join(smoke.err.split())) == (7, True), smoke.err
        second = stand.run("restart", "profile=fake", "--cold")
        stand.release()
        done = ended(client)

    assert (second.code, f"pid {client.pid}" in second.err) == (4, True), second.err
    assert (done.code, exchanged(before, stand.look())) == (0, SWAPPED)


# ---- what is no exchange

DIFFER: dict[str, tuple[marked.Change | None, dict[str, object], str]] = {
    "a key of its config": (None, {"rope_theta": 20000.0}, "config.json: rope_theta is 20000.0, the served one"),
    "d2t": (marked.other_d2t, {}, "d2t differs, and the server keeps what it has made of it at its start"),
    "shapes": (marked.thinner, {"intermediate_size": 128}, "midlayer.mlp.down_proj.weight is F32 [128, 128]"),
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFER)
def test_a_draft_of_another_build_restarts_and_says_which(stand: Stand, tmp_path: Path, name: str) -> None:
    change, keys, words = DIFFER[name]
    before = stand.look()
    draft = marked.draft(tmp_path / "draft", stand.other, 7, change=change, **keys)
    only = stand.run("restart", "profile=fake", "--ckpt", str(draft), "--hot")
    assert (only.code, stand.look()) == (5, before), only.err
    done = stand.passes("restart", "profile=fake", "--ckpt", str(draft))

    assert [said.err for said in (only, done) if words not in " ".join(said.err.split())] == []
    assert exchanged(before, stand.look()) == RESTARTED
    stand.passes("restart", "profile=fake", "--ckpt", str(stand.drafts[2.5]))


def test_cold_restarts_and_other_flags_restart(stand: Stand) -> None:
    before = stand.look()
    stand.restart("--cold")
    cold = stand.look()
    done = stand.restart("args.max-running-requests=32")

    assert exchanged(before, cold) == RESTARTED
    assert exchanged(cold, stand.look()) == RESTARTED
    assert "it restarts: more than the draft differs: " in done.err


def ended(client: Popen[str]) -> Done:
    out, err = client.communicate(timeout=60)
    return Done(client.returncode, out, err)
