"""What is heard and kept of a log while somebody waits for its server."""

from __future__ import annotations

import pytest

from deploy import engines
from deploy.engines._log import Seen
from deploy.errors import DeployError
from deploy.server.watch import Tail, _document

MARK = "[2026-11-29 20:01:22 TP0] Capture target decode CUDA graph begin. backend=full"
NOISE = "[2026-11-29 20:01:23 TP0] Ignore import error when loading a model"


def test_its_end_is_kept_and_how_far_the_server_was():
    tail = Tail(1000, engines.load("sglang").WORDS)
    for line in (NOISE, MARK, *[NOISE] * 5000):
        tail.add(line)
    mark, *rest = str(tail).splitlines()
    assert (mark, set(rest), sum(len(line) + 1 for line in rest) <= 1000) == (MARK, {NOISE}, True)


def test_a_silence_behind_much_noise_is_that_of_its_phase():
    tail, engine, silent = Tail(1000, engines.load("sglang").WORDS), engines.load("sglang"), Seen(silent=600.0)
    for line in (MARK, *[NOISE] * 100):
        tail.add(line)
    told = engine.explain(str(tail), silent)
    assert told is not None
    assert (told.signature, told.evidence.splitlines()[0]) == ("S20", MARK)
    assert told != engine.explain(NOISE * 10, silent)


@pytest.mark.parametrize("line", [b"Welcome to gpu1", b"3", b"{", b"\xff"])
def test_what_another_one_says_between_is_an_error_and_no_late_server(line: bytes) -> None:
    with pytest.raises(DeployError, match="gpu1: the watch program says what it should not"):
        _document(line, "gpu1")
