"""Our load generator, the real program on this machine, against servers that send scripted bytes at set times."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from deploy import host
from deploy.errors import Interrupted
from deploy.loads import Ran, own
from tests import loads
from tests.project import PATIENCE, ROOT, free_port, until
from tests.scripted_server import CHUNKED, CLOSE, STREAM, Script, chunk, event, last, scripted, usage

PACE = 0.01  # seconds from one event to the next
WORDS = 20


def ran(tmp_path: Path, port: int, engine: str = "command", *, key: str = "", **fields: Any) -> Ran:
    node = loads.node(port, engine, **fields.pop("node", {}))
    return own.run(loads.asked(**fields), node, loads.here(tmp_path, key=key), lambda _done, _of: None)


def paced(*_: Any, words: int = WORDS, pace: float = PACE) -> Script:
    """So many events of one token each, one every `pace` seconds."""
    steps = [(pace, chunk(event(f"w{number} ", **usage(number)))) for number in range(1, words + 1)]
    end = [(0.0, chunk(event(finish="stop") + last(words)) + b"0\r\n\r\n"), (0.0, b"")]
    return [(0.0, CHUNKED + chunk(event(**usage(0)))), *steps, *end]


# ---- tokens and times --------------------------------------------------------------------------------------------


def test_every_token_is_counted_and_has_its_time(tmp_path: Path) -> None:
    with scripted(paced) as server:
        done = ran(tmp_path, server.port, "vllm", count=3, max_tokens=WORDS)
    assert [(one.error, one.tokens, one.finish, one.tokens_by) for one in done.samples] == [
        ("", WORDS, "stop", "server")
    ] * 3
    for one, sent in zip(done.samples, server.sent, strict=True):
        assert one.first_tokens + sum(tokens for _, tokens in one.chunks) == WORDS
        assert one.text == "".join(f"w{number} " for number in range(1, WORDS + 1))
        # never before it was sent; how long after depends on who else computes here: benchmarks/client.py
        assert one.first is not None
        assert one.first >= PACE * 0.9
        assert one.seconds >= sent[-3] - sent[1]
    assert done.seconds >= 3 * WORDS * PACE * 0.9
    assert abs(done.clock_jump) < 1
    assert done.client_busy is not None


def test_as_many_are_asked_at_once_as_are_wanted_and_connections_are_kept(tmp_path: Path) -> None:
    with scripted(paced) as server:
        done = ran(tmp_path, server.port, count=9, concurrency=3)
    assert (server.most, server.connections, len(server.asked)) == (3, 3, 9)
    assert [one.prompt for one in done.samples] == [f"test/{number}" for number in range(9)]
    assert [one.error for one in done.samples] == [""] * 9
    assert sorted(body["messages"][0]["content"] for body in server.asked) == [f"question {n}" for n in range(9)]


# ---- how it may be written ---------------------------------------------------------------------------------------

WHOLE = event("Hal") + event("lö ") + event("Welt", "stop") + last(3)
PRETTY = json.dumps({"choices": [{"delta": {"content": "Hallö Welt"}, "finish_reason": "stop"}]}, indent=1)
CRLF = WHOLE.replace(b"\n", b"\r\n")
USUAL = STREAM + b"content-length: %d\r\n\r\n" % len(WHOLE) + WHOLE
BYTES = [(0.0, CHUNKED), *((0.0, chunk(bytes([byte]))) for byte in WHOLE), (0.0, b"0\r\n\r\n"), (0.0, b"")]
FORMS: dict[str, Script] = {
    "until it is closed": [(0.0, CLOSE + WHOLE)],
    "of a known length": [(0.0, USUAL), (0.0, b"")],
    "in one chunk": [(0.0, CHUNKED + chunk(WHOLE) + b"0\r\n\r\n"), (0.0, b"")],
    "byte by byte in chunks": BYTES,
    "chunks cut anywhere": [(0.001, piece) for piece in (CHUNKED[:40], CHUNKED[40:] + b"1", b"0\r", b"\n" + WHOLE[:9])]
    + [(0.001, WHOLE[9:16] + b"\r"), (0.001, b"\n" + chunk(WHOLE[16:]) + b"0\r\nx-trailer: 1\r\n\r"), (0.001, b"\n")]
    + [(0.0, b"")],
    "chunks with an extension": [(0.0, CHUNKED + b"%x;a=b\r\n" % len(WHOLE) + WHOLE + b"\r\n0\r\n\r\n"), (0.0, b"")],
    "CRLF": [(0.0, CLOSE + CRLF)],
    "CR alone": [(0.0, CLOSE + WHOLE.replace(b"\n", b"\r"))],
    "CRLF that is cut": [
        (0.001, CLOSE + WHOLE.replace(b"\n", b"\r\n")[:70]),
        (0.001, WHOLE.replace(b"\n", b"\r\n")[70:]),
    ],
    "comments between": [(0.0, CLOSE + b": ping\n\n" + WHOLE.replace(b"\n\n", b"\n\n: ping\n\n"))],
    "other fields beside": [(0.0, CLOSE + b"id: 7\nretry: 5\n" + WHOLE.replace(b"data:", b"event: message\ndata:"))],
    "no space behind the colon": [(0.0, CLOSE + WHOLE.replace(b"data: ", b"data:"))],
    "several lines of data": [
        (0.0, CLOSE + "".join(f"data: {line}\n" for line in PRETTY.splitlines()).encode() + b"\n" + last(3))
    ],
    "no blank line at the end": [(0.0, CLOSE + WHOLE.rstrip(b"\n"))],
    "no last word": [(0.0, CLOSE + WHOLE.replace(b"data: [DONE]\n\n", b""))],
    "a head that is cut": [(0.001, CLOSE[:9]), (0.001, CLOSE[9:30]), (0.001, CLOSE[30:] + WHOLE)],
    "100 before it": [(0.0, b"HTTP/1.1 100 Continue\r\n\r\n"), (0.0, CLOSE + WHOLE)],
    "HTTP/1.0": [(0.0, CLOSE.replace(b"1.1", b"1.0") + WHOLE)],
    "it stays open": [(0.0, CHUNKED + chunk(WHOLE)), (0.0, b"")],
}


@pytest.mark.parametrize("form", FORMS)
def test_an_answer_is_read_however_it_is_written(tmp_path: Path, form: str) -> None:
    with scripted(lambda *_: FORMS[form]) as server:
        done = ran(tmp_path, server.port, count=2)
    assert [(one.error, one.text, one.tokens, one.finish) for one in done.samples] == [
        ("", "Hallö Welt", 3, "stop")
    ] * 2


def test_a_kept_connection_that_was_closed_meanwhile_is_no_fault(tmp_path: Path) -> None:
    """Some servers close it after each answer without saying so."""
    whole = STREAM + b"content-length: %d\r\n\r\n" % len(WHOLE) + WHOLE
    with scripted(lambda *_: [(0.0, whole)]) as server:
        done = ran(tmp_path, server.port, count=4)
    assert ([one.error for one in done.samples], server.connections) == ([""] * 4, 4)


# ---- what goes wrong ---------------------------------------------------------------------------------------------

WRONG: dict[str, tuple[Script, str]] = {
    "it hangs up at once": ([], "the server hung up"),
    "it hangs up half-way": ([(0.0, CLOSE + event("a")), (0.0, event("b"))], "the answer stops half-way"),
    "a chunk is cut": ([(0.0, CHUNKED + b"ff\r\n" + event("a"))], "the server hung up"),
    "an error as an event": ([(0.0, CLOSE + b'data: {"error": {"message": "out of memory"}}\n\n')], "out of memory"),
    "an error among the words": (
        [(0.0, CLOSE + event("a") + b'data: {"object": "error", "message": "no more"}\n\n' + last(1))],
        "no more",
    ),
    "an event called error": ([(0.0, CLOSE + b'error: {"code": 500, "message": "slot"}\n\n')], "slot"),
    "it ends what it cannot go on with": (
        [(0.0, CLOSE + event("a", "abort") + last(1))],
        "the server gives up: it ends the answer with 'abort'",
    ),
    "a chunk of less than nothing": ([(0.0, CHUNKED + b"-5\r\n" + event("a"))], "no size of a chunk"),
    "words without end": (
        [(0.0, CLOSE), *[(0.0, b": " + b"x" * (4 << 20) + b"\n")] * 33],
        "an answer of more than 128 MiB",
    ),
    "no JSON": ([(0.0, CLOSE + b"data: {half\n\n" + last(1))], "an event is no JSON object"),
    "another status": (
        [(0.0, b"HTTP/1.1 400 Bad\r\ncontent-length: 9\r\n\r\ntoo long.")],
        "it answers 400: too long.",
    ),
    "no stream": (
        [(0.0, b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 5\r\n\r\n<htm>")],
        "no stream of events, but text/html",
    ),
    "no HTTP": ([(0.0, b"SSH-2.0-OpenSSH\r\n\r\n")], "no HTTP"),
    "no end": ([(0.0, CLOSE + event("a")), (60.0, b"")], "no end of the answer within 1 s"),
    "not a word": ([(60.0, b"")], "no end of the answer within 1 s"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_goes_wrong_is_told_of_that_request_alone(tmp_path: Path, case: str) -> None:
    script, words = WRONG[case]
    with scripted(lambda number, _: script if number == 0 else [(0.0, USUAL), (0.0, b"")]) as server:
        done = ran(tmp_path, server.port, count=2, timeout=1.0 if "within" in words else 20.0)
    assert words in done.samples[0].error
    assert (done.samples[1].error, done.samples[1].text) == ("", "Hallö Welt")


def test_nobody_listens(tmp_path: Path) -> None:
    done = ran(tmp_path, free_port(), count=3)
    assert [one.error for one in done.samples] == ["Connection refused"] * 3
    assert [one.first for one in done.samples] == [None] * 3


# ---- whose it is -------------------------------------------------------------------------------------------------


def test_the_key_goes_by_no_command_line(tmp_path: Path) -> None:
    seen: list[bytes] = []

    def answer(*_: Any) -> Script:
        seen.extend(path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists())
        return [(0.0, CLOSE + WHOLE)]

    with scripted(answer) as server:
        done = ran(tmp_path, server.port, key="hidden-key")
    assert "Authorization: Bearer hidden-key\r\n" in server.heads[0]
    assert not any(b"hidden-key" in words for words in seen)
    assert "hidden-key" not in done.command


def test_who_stops_leaves_nothing_behind(tmp_path: Path) -> None:
    """The program on the host ends with the run that waits for it, though the server never answers."""
    remote = loads.here(tmp_path)
    failed: list[BaseException] = []

    def run() -> None:
        try:
            own.run(loads.asked(timeout=60.0), loads.node(server.port), remote, lambda _done, _of: None)
        except Interrupted as error:
            failed.append(error)

    with scripted(lambda *_: [(60.0, b"")]) as server:
        thread = threading.Thread(target=run)
        thread.start()
        until(lambda: server.asked, what="a request")
        assert clients()
        remote.abort.set()
        thread.join(PATIENCE)
        assert failed
        until(lambda: not clients(), what="the end of the program")


@pytest.mark.parametrize("program", ["load", "bench_client"])
def test_a_program_whose_stdin_ends_ends(tmp_path: Path, program: str) -> None:
    """As when the connection is lost: nobody is there to tell it to stop."""
    question = {"path": "/", "body": {}, "tokens": []}
    asked = {"key": "", "concurrency": 1, "timeout": 60.0, "gpus": [], "requests": [question]}
    client = {"argv": ["sleep", "61.5"], "env": {}, "files": {}, "output": "none", "secret": {}, "total": 1}
    with scripted(lambda *_: [(60.0, b"")]) as server:
        words = [sys.executable, "-I", "-c", host.source(program)]
        environ, pipe, nothing = {**os.environ, "TMPDIR": str(tmp_path)}, subprocess.PIPE, subprocess.DEVNULL
        with subprocess.Popen(words, stdin=pipe, stdout=nothing, env=environ) as run:
            assert run.stdin
            run.stdin.write(json.dumps({"port": server.port, **asked, **client}).encode() + b"\n")
            run.stdin.flush()
            until(lambda: bool(server.asked) or any(tmp_path.iterdir()), what="its beginning")
            run.stdin.close()
            assert run.wait(PATIENCE) == 1
    assert list(tmp_path.iterdir()) == []


def clients() -> list[Path]:
    """The programs of ours that ask servers on this machine."""
    return [path for path in Path("/proc").glob("[0-9]*/cmdline") if _ours(path)]


def _ours(path: Path) -> bool:
    try:
        return b"Asks a server on this host a round of questions" in path.read_bytes()
    except OSError:
        return False


# ---- GPUs --------------------------------------------------------------------------------------------------------


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state of this machine's GPUs, of which 0 and 1 are taken."""
    monkeypatch.setenv("PATH", f"{ROOT / 'tests' / 'fake-bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_GPU_STATE", str(tmp_path))
    (tmp_path / "holders").mkdir()
    return tmp_path


WATTS: list[tuple[dict[str, Any], float | None, int | None]] = [
    (
        {"0": {"power.draw": "100.5", "memory.used": "70000"}, "1": {"power.draw": "49.5", "memory.used": "5"}},
        150,
        70005,
    ),
    ({"0": {"power.draw": "[N/A]", "memory.used": "7"}, "1": {"memory.used": "5"}}, None, 12),
    ({"*": {"power.draw": "[Not Supported]", "memory.used": "[N/A]"}}, None, None),
]


@pytest.mark.parametrize(("fields", "watts", "mib"), WATTS)
def test_power_and_memory_of_the_gpus_that_are_taken(
    gpus: Path, fields: dict[str, Any], watts: float | None, mib: int | None
) -> None:
    """Those of others count for nothing; what a GPU does not tell is not told."""
    (gpus / "gpus.json").write_text(json.dumps({"preset": "rtx-pro-6000 x4", "fields": fields}))
    with scripted(lambda *_: [(0.0, CLOSE), (2.0, WHOLE)]) as server:
        done = ran(gpus, server.port, node={"gpus": 2})
    assert (done.watts, done.gpu_bytes) == (watts, None if mib is None else mib << 20)
    until(lambda: not _watching(gpus), what="the end of nvidia-smi")


def test_without_gpus_nobody_looks(gpus: Path) -> None:
    with scripted(lambda *_: [(0.0, CLOSE + WHOLE)]) as server:
        done = ran(gpus, server.port)
    assert (done.watts, done.gpu_bytes, done.samples[0].error) == (None, None, "")


def test_a_host_whose_gpus_say_nothing_is_measured_all_the_same(gpus: Path) -> None:
    (gpus / "gpus.json").write_text(json.dumps({"preset": "rtx-pro-6000 x4", "failure": "no-driver"}))
    with scripted(lambda *_: [(0.0, CLOSE + WHOLE)]) as server:
        done = ran(gpus, server.port, node={"gpus": 2})
    assert (done.watts, done.gpu_bytes, done.samples[0].error) == (None, None, "")


def _watching(state: Path) -> list[Path]:
    """The nvidia-smi that tell of these GPUs again and again."""
    found: list[Path] = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words, environ = (process / "cmdline").read_bytes(), (process / "environ").read_bytes()
            found += [process] * (b"-lms" in words and str(state).encode() in environ)
    return found
