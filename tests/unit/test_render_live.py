import io
import os
import pty
import re
import threading
from pathlib import Path

import pytest

from deploy import record, render
from tests.project import PATIENCE

EVENTS = Path(__file__).parent.parent / "fixtures" / "events"


def on_a_terminal(name, verbosity=0, **environ):
    """What a real terminal is sent while the recorded events are shown."""
    controller, terminal = pty.openpty()
    sent: list[bytes] = []
    reader = threading.Thread(target=drain, args=(controller, sent))
    reader.start()
    stdout = io.StringIO()
    with os.fdopen(terminal, "w", encoding="utf-8") as stderr:
        variables = {"TERM": "xterm", "COLUMNS": "80", **environ}
        view = render.choose(output="auto", verbosity=verbosity, environ=variables, stdout=stdout, stderr=stderr)
        for number, line in enumerate((EVENTS / name).read_text(encoding="utf-8").split("\n")[:-1], 1):
            view.on(record.parse(line, f"{name}:{number}"))
        view.close()
        view.close()
    reader.join(PATIENCE)
    os.close(controller)
    assert stdout.getvalue() == ""
    return b"".join(sent).decode()


def drain(controller, sent):
    while True:
        try:
            chunk = os.read(controller, 65536)
        except OSError:  # EIO: the terminal's side was closed
            return
        sent.append(chunk)


@pytest.mark.parametrize("name", ["up.jsonl", "gate-failed.jsonl", "fleet.jsonl", "killed.jsonl"])
def test_the_terminal_is_left_as_it_was(name):
    sent = on_a_terminal(name)
    assert sent.rindex("\x1b[?25h") > sent.rindex("\x1b[?25l")  # the cursor is shown


def test_a_client_that_is_killed_leaves_the_cursor_on():
    before_the_end = on_a_terminal("up.jsonl").partition("answers as kimi")[0]
    assert before_the_end.rindex("\x1b[?25h") > before_the_end.rindex("\x1b[?25l")


def test_a_key_that_is_echoed_does_not_shift_the_grid():
    sent = on_a_terminal("up.jsonl").replace("\x1b[?25h", "")
    before_each_redrawing = re.findall(r"(.)\r\x1b\[2K", sent, re.DOTALL)
    assert before_each_redrawing and set(before_each_redrawing) == {"\n"}


@pytest.mark.parametrize("verbosity", [0, 2])
def test_a_host_cannot_steer_the_terminal(verbosity):
    sent = on_a_terminal("fleet.jsonl", verbosity)
    ours = re.sub(r"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\x1b\[2K|\x1b\[1A|\r\n?|\n", "", sent)
    assert not [char for char in ours if not char.isprintable()]
    assert "[bold red]not markup[/bold red]" in sent


def test_the_last_grid_stays_and_the_verdict_follows_it():
    sent = re.sub(r"\x1b\[[0-9;]*m", "", on_a_terminal("up.jsonl"))
    last = sent[sent.rindex("up kimi-eagle3 on gpu1") :]
    assert "✓  bench        8.1s  accept length 3.90, 120.0 tokens/s" in last
    assert last.index("  bench  ") < last.index("✓ kimi-eagle3 serves on gpu1:8000  1m47s")


@pytest.mark.parametrize(("environ", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_no_color_is_honoured(environ, coloured):
    assert coloured == bool(re.search(r"\x1b\[[0-9;]*3[0-9]", on_a_terminal("gate-failed.jsonl", **environ)))


@pytest.mark.parametrize(("verbosity", "told"), [(0, False), (1, True)])
def test_verbose_lines_stand_above_the_grid(verbosity, told):
    assert told == ("gpu1  bench      prompt 2 of 4  50%" in on_a_terminal("up.jsonl", verbosity))
