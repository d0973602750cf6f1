import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy import render
from deploy.errors import ConfigError
from deploy.events import Event
from tests.project import PATIENCE

EVENTS = Path(__file__).parent.parent / "fixtures" / "events"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def chosen(output="auto", verbosity=0, environ=None, stderr=None):
    stderr = stderr or Terminal()
    environ = {"TERM": "xterm"} if environ is None else environ
    return render.choose(output=output, verbosity=verbosity, environ=environ, stdout=io.StringIO(), stderr=stderr)


@pytest.mark.parametrize(
    ("view", "how"),
    [
        ("Live", {}),
        ("Live", {"verbosity": 2}),
        ("Live", {"environ": {"TERM": "xterm", "CI": "false"}}),
        ("Live", {"output": "live"}),
        ("Plain", {"verbosity": -1}),
        ("Plain", {"environ": {"TERM": "dumb"}}),
        ("Plain", {"environ": {}}),
        ("Plain", {"environ": {"TERM": "xterm", "CI": "1"}}),
        ("Plain", {"stderr": io.StringIO()}),
        ("Plain", {"output": "plain"}),
        ("Plain", {"output": "quiet"}),
        ("Plain", {"output": "json"}),
        ("Silent", {"output": "json", "verbosity": -1}),
        ("JsonLines", {"output": "jsonl"}),
    ],
)
def test_the_view_fits_terminal_and_options(view, how):
    assert view == type(chosen(**how)).__name__


def test_an_unknown_view_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="there is no view 'pain'") as told:
        chosen("pain")
    assert told.value.remedy == "did you mean 'plain'?"


def test_json_lines_are_the_events_themselves_on_stdout():
    stdout = io.StringIO()
    view = render.choose(output="jsonl", verbosity=-1, environ={}, stdout=stdout, stderr=io.StringIO())
    event = Event("said", "half\nway \x1b[2J", "gpu1", "push", {"done": 1, "at": Path("a/b")}, at=1.5)
    view.on(event)
    assert json.loads(stdout.getvalue()) == {**event.to_json(), "facts": {"done": 1, "at": "a/b"}}
    assert stdout.getvalue().count("\n") == 1


FEED = """
import os, sys
from deploy import record, render
view = render.choose(output=sys.argv[2], verbosity=2, environ=os.environ, stdout=sys.stdout, stderr=sys.stderr)
for _ in range(300):
    for line in open(sys.argv[1], encoding="utf-8").read().split("\\n")[:-1]:
        view.on(record.parse(line, "fixture"))
view.close()
print("and a last word", file=sys.stdout if sys.argv[2] == "jsonl" else sys.stderr, flush=True)
os.write(int(sys.argv[3]), b"went on to the end")
"""


@pytest.mark.parametrize("output", ["jsonl", "plain"])
def test_a_reader_that_has_seen_enough_does_not_stop_the_run(output):
    end, beginning = os.pipe()
    command = [sys.executable, "-c", FEED, str(EVENTS / "up.jsonl"), output, str(beginning)]
    stderr = subprocess.PIPE if output == "jsonl" else subprocess.STDOUT
    with subprocess.Popen(command, pass_fds=[beginning], stdout=subprocess.PIPE, stderr=stderr) as process:
        os.close(beginning)
        assert process.stdout is not None
        assert process.stdout.readline()
        process.stdout.close()
        complaint = process.stderr.read() if process.stderr else b""
        assert process.wait(PATIENCE) == 0
    assert complaint == b""
    assert os.read(end, 100) == b"went on to the end"
    os.close(end)


def test_a_terminal_without_unicode_gets_signs_it_knows():
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    view = render.choose(output="plain", verbosity=0, environ={}, stdout=io.StringIO(), stderr=stream)
    view.on(Event("noted", "done ✓ → 重", at=1.0))
    assert raw.getvalue() == b"   0.0s  done + > ?\n"
