import io
from pathlib import Path

import pytest

from deploy import record, render
from deploy.events import Event
from deploy.render import Screen, live, plain

EVENTS = Path(__file__).parent.parent / "fixtures" / "events"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(name, verbosity=0, stream=None, environ=None):
    stdout, stderr = io.StringIO(), stream or io.StringIO()
    view = plain.view(Screen(stdout, stderr, environ or {}, verbosity))
    for event in recorded(name):
        view.on(event)
    view.close()
    assert stdout.getvalue() == ""
    return stderr.getvalue()


def recorded(name):
    lines = (EVENTS / name).read_text(encoding="utf-8").split("\n")[:-1]
    return [record.parse(line, f"{name}:{number}") for number, line in enumerate(lines, 1)]


GATE_FAILED = """\
   0.0s  up local on localhost (run 20261129-202000-0badd1)
   0.0s  localhost  nothing runs: launching
   0.2s  localhost  preflight  FAIL ckpt: the output head is random (waived)
          > train it, or waive=[ckpt]
   0.3s  localhost  preflight  9 checks hold, 1 is waived
   0.5s  localhost  push       5.2 MB linked, 2 files, sha256 equal
   0.5s  localhost  prepare    skipped: no prepare hooks
   0.5s  localhost  stop       nothing was running
   0.5s  localhost  free       free after 0 s
   0.6s  localhost  launch     pid 811, port 30000
   2.5s  localhost  wait       ready after 2 s
   2.5s  localhost  health     pid 811 answers as tiny
   2.7s  localhost  smoke      asked 'What is the capital of France?', answered 'Paris'
   3.6s  localhost  bench      accept length 1.00, 311.2 tokens/s
   3.6s  localhost  gate       FAILED: accept length 1.00 does not hold >= 1.15: not one drafted token is accepted
          | 4 prompts, 256 tokens generated, 256 verify steps
          | 768 tokens drafted, 0 accepted
          > serve another draft: deploy restart --ckpt PATH
            or lower the floor: gates.accept_length='>= 1.0'
          accept length 1.00, wanted >= 1.15: FAILS
          tokens per second 311
          waived: ckpt
   3.7s  local serves on localhost:30000, but a gate fails (exit 9)
"""


def test_a_failed_gate_reads_as_a_story():
    assert shown("gate-failed.jsonl") == GATE_FAILED


def test_quiet_tells_failures_and_the_end():
    told = shown("gate-failed.jsonl", -1).splitlines()
    assert told[0] == GATE_FAILED.splitlines()[14]
    assert told[-1] == GATE_FAILED.splitlines()[-1]
    assert len(told) == 6
    assert shown("up.jsonl", -1) == "  1m47s  kimi-eagle3 serves on gpu1:8000\n"


def test_progress_comes_at_most_every_five_seconds_of_event_time():
    waiting = [line for line in shown("up.jsonl").splitlines() if "of 64 shards" in line]
    assert waiting[0] == "   9.7s  gpu1  wait       target weights: 0 of 64 shards  0%"
    assert waiting[1] == "  18.9s  gpu1  wait       target weights: 8 of 64 shards  12%  1m04s left"
    assert len(waiting) == 9  # of 17, which are 4.6 s apart


def test_a_silent_phase_is_told_again_with_its_time_and_the_time_left():
    stderr = io.StringIO()
    view = plain.view(Screen(io.StringIO(), stderr, {}, 0))
    view.on(Event("run_started", at=1000.0, facts={"hosts": ["gpu1"], "recipe": [["wait", "each", ""]]}))
    for at in (10, 25, 40):
        facts = {"phase": "graphs", "component": "target", "elapsed": at - 10.0, "left": 130.0 - at}
        view.on(Event("said", "capturing", host="gpu1", step="wait", at=1000.0 + at, facts=facts))
    assert stderr.getvalue().splitlines()[1:] == [
        "  10.0s  gpu1  wait  target graphs: capturing  ~2m00s to ready",
        "  25.0s  gpu1  wait  target graphs: capturing  for 15s  ~1m45s to ready",
        "  40.0s  gpu1  wait  target graphs: capturing  for 30s  ~1m30s to ready",
    ]


@pytest.mark.parametrize(
    ("verbosity", "words", "told"),
    [
        (0, "Loading safetensors", False),
        (0, "gpu1  connected", False),
        (0, "PASS gpus", False),
        (0, "WARN ckpt", True),
        (0, "bench      measured", False),
        (1, "PASS gpus", True),
        (1, "bench      measured", False),
        (1, "prompt 2 of 4", True),
        (1, "Loading safetensors", False),
        (2, "| [2026-11-29 20:16:04 TP0] Loading safetensors", True),
    ],
)
def test_verbosity_adds_what_was_said_then_the_log(verbosity, words, told):
    assert told == (words in shown("up.jsonl", verbosity))


def test_nothing_that_a_host_says_reaches_the_terminal_as_a_command():
    text = shown("fleet.jsonl", 2)
    assert not [char for char in text if char != "\n" and ord(char) < 32]
    assert "          | [bold red]not markup[/bold red] gnp.exe click 31mx\n" in text


@pytest.mark.parametrize(
    ("stream", "environ", "coloured"),
    [
        (Terminal(), {"TERM": "xterm"}, True),
        (Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}, False),
        (Terminal(), {"TERM": "dumb"}, False),
        (io.StringIO(), {"TERM": "xterm"}, False),
    ],
)
def test_colours_are_for_terminals_that_want_them(stream, environ, coloured):
    assert coloured == ("\x1b[31m" in shown("gate-failed.jsonl", 0, stream, environ))


def test_a_crash_is_told_as_our_bug_with_its_traceback():
    stream = io.StringIO()
    view = render.choose(output="quiet", verbosity=0, environ={}, stdout=io.StringIO(), stderr=stream)
    view.on(Event("crashed", "Traceback:\nKeyError: 'x'", at=5.0))
    assert stream.getvalue() == (
        "   0.0s  CRASHED: this is a bug in deploy\n          | Traceback:\n          | KeyError: 'x'\n"
    )


def lines_of(*events, verbosity=0):
    stream = io.StringIO()
    view = plain.view(Screen(io.StringIO(), stream, {}, verbosity))
    for event in events:
        view.on(event)
    return stream.getvalue()


STOPS = [("Interrupted", "stopped before launch", "gpu1  launch     stopped before launch\n"),
         ("Interrupted", "detached in wait", "stopped: detached in wait\n"),
         ("NotReady", "no new log line", "FAILED: no new log line\n")]  # fmt: skip


@pytest.mark.parametrize(("error", "text", "told"), STOPS)
def test_an_interruption_is_no_failure(error, text, told):
    event = Event("failed", text, "gpu1", "launch", {"error": error}, at=5.0)
    assert told in lines_of(event)
    assert ("FAILED" in lines_of(event)) is (error != "Interrupted")
    state = render.fold(render.State(), event)
    assert state.rows["gpu1"].cell("launch").mark == ("left" if error == "Interrupted" else "failed")
    picture = io.StringIO()
    live.still(state, Screen(picture, io.StringIO(), {"COLUMNS": "100"}))
    assert ("✗" in picture.getvalue(), "launch · failed" in picture.getvalue()) == (error != "Interrupted",) * 2
    assert text in picture.getvalue().partition("╭")[0]
    ended = render.fold(state, Event("run_ended", text, at=6.0, facts={"exit_code": 130}))
    picture = io.StringIO()
    live.still(ended, Screen(picture, io.StringIO(), {"COLUMNS": "100"}))
    assert picture.getvalue().count(text) == (1 if error == "Interrupted" else 2), "the last line, and a failure's box"


@pytest.mark.parametrize(("verbosity", "told"), [(0, False), (1, True)])
def test_the_name_of_a_check_is_for_who_wants_to_know_all(verbosity, told):
    events = [
        Event("step_started", "", "gpu1", "preflight", at=1.0),
        Event("said", "ckpt", "gpu1", "preflight", at=1.0),
        Event("said", "disk", "gpu1", "preflight", at=9.0),
    ]
    text = lines_of(*events, verbosity=verbosity)
    assert ("ckpt" in text, "disk" in text) == (told, told)
