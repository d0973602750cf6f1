"""The stand-in for SGLang takes another draft while it serves, as the real one does, and shows what is loaded."""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

import base64
import http.client
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from deploy.host import header, swap_shm
from tests import fakes, marked
from tests.fakes import READY
from tests.project import EXAMPLES, until

DRAFT = {"selector": "draft"}
NEW = "0.5.23"
RIGHT = "The capital of France is Paris."
MIXTURE = "two drafts speak at once"
SPOILT = "the target is not itself"
LEFT_OUT = ("d2t", "t2d")


@pytest.fixture
def start(tmp_path):
    """Servers of a version, with a draft that says 2.5."""
    first = marked.draft(tmp_path / "first", 2.5, 1)
    with fakes.starting(tmp_path) as run:
        yield lambda *flags, **fake: run(
            "--speculative-draft-model-path", str(first), *flags, **{"version": NEW, **fake}
        ).says(READY)


@pytest.fixture
def other(tmp_path):
    return marked.draft(tmp_path / "other", 1.5, 2)


def post(server, path, body=None, **how):
    return server.ask(path, body or {}, **how)


def piece(folder, limit=1 << 30):
    """What is handed over, as the tool does it."""
    names = set(header.read(folder / "model.safetensors").tensors) - set(LEFT_OUT)
    return swap_shm.pieces(swap_shm.weights(str(folder), names), limit)


def hand(server, part, ranks=1, **body):
    with part.handed(f"torch_{os.getpid()}_{server.port}_0") as pickled:
        blobs = [base64.b64encode(pickled).decode()] * ranks
        asked = {"serialized_named_tensors": blobs, **DRAFT, "flush_cache": False, **body}
        return post(server, "/update_weights_from_tensor", asked)


def swap(server, folder, ranks=1, **body):
    """The status of each piece's update."""
    post(server, "/begin_weight_update", DRAFT)
    told = [hand(server, part, ranks, **body)[0] for part in piece(folder)]
    post(server, "/end_weight_update")
    return told


def checksums(server, **how):
    ranks = post(server, "/weights_checker", {"action": "checksum", **DRAFT}, **how)[1]["ranks"]
    return [rank["checksums"] for rank in ranks]


def serves(server):
    """(accept length, what an answer begins with)."""
    text = server.generate(61, "capital of France?")["text"]
    told = server.generate(61)["meta_info"]
    said = next((known for known in (RIGHT, MIXTURE, SPOILT) if text.startswith(known)), text)
    return round(told["spec_accept_length"], 1), said


@pytest.mark.parametrize("ranks", [1, 2])
def test_another_draft_serves_and_its_checksums_are_those_of_a_start_with_it(start, other, tmp_path, ranks):
    server = start("--tp-size", str(ranks))
    cold = start("--tp-size", str(ranks), "--speculative-draft-model-path", str(other))
    before = checksums(server)

    assert serves(server) == (2.5, RIGHT)
    assert swap(server, other, ranks) == [200]
    assert (serves(server), serves(cold)) == ((1.5, RIGHT), (1.5, RIGHT))
    assert checksums(server) == checksums(cold) != before
    assert swap(server, tmp_path / "first", ranks) == [200]
    assert (serves(server), checksums(server)) == ((2.5, RIGHT), before)
    assert len(before) == ranks
    assert {"draft.model.layers.0.self_attn.qkv_proj.weight", "draft.model.embed_tokens.weight"} <= before[0].keys()


def test_what_is_not_whole_is_seen(start, other, tmp_path):
    mixed, spoilt, old = start(), start(), start(version="0.5.20")
    post(mixed, "/begin_weight_update", DRAFT)
    assert hand(mixed, piece(other, limit=1 << 18)[0])[0] == 200

    assert serves(mixed) == (1.0, MIXTURE)
    assert swap(spoilt, other, selector="all") == [200]
    assert serves(spoilt) == (1.0, SPOILT)
    assert hand(old, piece(other)[0])[0] == 200, "it knows no selector, and takes it for both"
    assert serves(old) == (1.0, SPOILT)
    assert [post(old, path)[0] for path in ("/begin_weight_update", "/end_weight_update")] == [404, 404]


def test_a_draft_without_a_mark_says_nothing(start):
    draft = str(EXAMPLES / "draft")

    assert serves(start("--speculative-draft-model-path", draft))[0] == 3.0
    assert serves(start("--speculative-draft-model-path", draft, accept_length=2.0))[0] == 2.0


def test_a_session_is_opened_once_and_needed(start, other):
    server = start()
    opened = [post(server, "/begin_weight_update", DRAFT)[0] for _ in range(2)]
    closed = [post(server, "/end_weight_update")[0] for _ in range(2)]

    assert (opened, closed) == ([200, 400], [200, 400])
    assert hand(server, piece(other)[0])[0] == 400
    assert serves(server) == (2.5, RIGHT)
    wrong = [("/pause_generation", {"mode": "gently"}), ("/begin_weight_update", {"selector": "mine"})]
    assert [post(server, path, body)[0] for path, body in wrong] == [400, 400]


def broken(part):
    """A piece whose file is gone."""
    with part.handed(f"torch_{os.getpid()}_gone_0") as pickled:
        return pickled


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (lambda folder: broken(piece(folder)[0]), "unable to open file </torch_"),
        (lambda _: b"\x80\x04cos\nsystem\n.", "Blocked unsafe class loading"),
        (lambda folder: b"", "EOFError"),
    ],
)
def test_it_dies_of_what_the_real_one_dies_of(start, other, payload, said):
    server = start()
    post(server, "/begin_weight_update", DRAFT)
    blob = base64.b64encode(payload(other)).decode()
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        post(server, "/update_weights_from_tensor", {"serialized_named_tensors": [blob], **DRAFT})

    until(lambda: server.process.poll() is not None)
    assert said in server.log()
    assert "Scheduler hit an exception" in server.log()


def test_it_dies_of_another_shape(start, tmp_path):
    server = start()
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        swap(server, marked.draft(tmp_path / "wide", 1.5, change=marked.wider("fc.weight")))

    assert "(torch.Size([256, 384])) into parameter (torch.Size([128, 384]))" in server.log()


def test_paused_it_lets_requests_wait_and_answers_the_rest(start):
    server = start()
    assert post(server, "/pause_generation", {"mode": "retract"})[0] == 200
    waiting = threading.Thread(target=server.chat)
    waiting.start()

    with pytest.raises(TimeoutError):
        server.ask("/health", timeout=0.3)
    told = [server.ask(path)[0] for path in ("/ready", "/model_info", "/v1/models", "/flush_cache")]
    assert told == [503, 200, 200, 200]
    assert waiting.is_alive()
    assert post(server, "/continue_generation")[0] == 200
    waiting.join(5)
    assert not waiting.is_alive()
    assert [server.ask(path)[0] for path in ("/ready", "/health")] == [200, 200]


@pytest.mark.parametrize(
    ("mode", "flushed", "ends"), [("retract", 200, False), ("in_place", 400, False), ("abort", 200, True)]
)
def test_a_pause_stops_the_request_that_runs(start, other, mode, flushed, ends):
    server = start(tokens_per_second=40)
    answers: list[Any] = []
    running = threading.Thread(target=lambda: answers.append(server.generate(40)))
    running.start()
    until(lambda: server.ask("/flush_cache")[0] == 400)
    post(server, "/pause_generation", {"mode": mode})

    assert server.ask("/flush_cache")[0] == flushed
    assert swap(server, other) == [200]
    if ends:
        running.join(5)
        assert answers[0]["meta_info"]["finish_reason"]["type"] == "abort"
        return
    assert running.is_alive()
    post(server, "/continue_generation")
    running.join(5)
    assert answers[0]["meta_info"]["completion_tokens"] == 40


def test_not_paused_an_update_waits_for_requests(start, other):
    server = start(tokens_per_second=40)
    answers: list[Any] = []
    running = threading.Thread(target=lambda: answers.append(server.generate(40)))
    running.start()
    until(lambda: server.ask("/flush_cache")[0] == 400)
    post(server, "/begin_weight_update", DRAFT)

    running.join(0.5)
    assert not running.is_alive()


def test_an_admins_key_is_asked_for_where_weights_change(start, tmp_path):
    config = tmp_path / "secrets.yaml"
    config.write_text('api-key: "user"\nadmin-api-key: "admin"\n')
    server, alone = start("--config", str(config)), start("--api-key", "user")

    assert [post(server, "/begin_weight_update", DRAFT, key=key)[0] for key in ("", "user", "admin")] == [401, 401, 200]
    assert [server.ask("/v1/models", key=key)[0] for key in ("user", "admin")] == [200, 401]
    assert [post(alone, "/begin_weight_update", DRAFT, key=key)[0] for key in ("", "user")] == [401, 200]


UPDATE, CHECK = "/update_weights_from_tensor", "/weights_checker"


@pytest.mark.parametrize(
    ("fault", "statuses", "then"),
    [
        ({UPDATE: "refuse 1"}, [400], (2.5, RIGHT)),
        ({UPDATE: "ignore"}, [200], (2.5, RIGHT)),
        ({UPDATE: "lose"}, [200], (1.0, MIXTURE)),
        ({UPDATE: "half"}, [400], (1.0, MIXTURE)),
        ({UPDATE: "refuse 2-"}, [200], (1.5, RIGHT)),
        ({UPDATE: "refuse 2-3"}, [200], (1.5, RIGHT)),
    ],
)
def test_faults_are_as_asked_for(start, other, fault, statuses, then):
    server = start(faults=fault)

    assert (swap(server, other), serves(server)) == (statuses, then)


@pytest.mark.parametrize(("word", "alive", "then"), [
    ("drop", True, (2.5, RIGHT)), ("then-drop", True, (1.5, RIGHT)), ("die", False, None), ("then-die", False, None),
])  # fmt: skip
def test_it_breaks_off_before_or_after_it_is_done(start, other, word, alive, then):
    server = start(faults={UPDATE: f"{word} 1"})
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        swap(server, other)

    if alive:
        assert serves(server) == then
    else:
        until(lambda: server.process.poll() is not None)


def test_checksums_may_lie_at_one_call(start):
    one, two, three = (checksums(server) for server in [start(faults={CHECK: "lie 2"})] * 3)

    assert one == three != two


def test_whoever_waits_at_a_breakpoint_after_it_is_done_has_done_it(start, other, tmp_path):
    folder = tmp_path / "breakpoints"
    folder.mkdir()
    server = start(breakpoints=str(folder))
    (folder / "x.at").write_text(f"POST {UPDATE} done")
    done = threading.Thread(target=swap, args=(server, other))
    done.start()

    until((folder / "x.hit").exists)
    assert serves(server) == (1.5, RIGHT)
    (folder / "x.hit").unlink()
    done.join(5)
    assert not done.is_alive()


def test_nothing_is_left_in_shared_memory(start, other):
    server = start()
    swap(server, other)

    assert not list(Path("/dev/shm").glob(f"torch_{os.getpid()}_{server.port}_*"))
