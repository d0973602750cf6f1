"""Which runs a list shows."""

from __future__ import annotations

import json
import time
from datetime import datetime, timedelta

import pytest
from click.testing import CliRunner

from deploy.commands.history import history
from deploy.errors import ConfigError
from deploy.text import when
from tests import measurements, recorded

NOW = datetime.now().astimezone()
OLD, BAD, NEW = "20261201-080000-0000a1", "20261201-090000-0000a2", "20261201-100000-0000a3"


@pytest.fixture
def project(tmp_path):
    """An old run, a bad one of another draft, and a new one of two hosts."""
    (tmp_path / "inventory.yaml").write_text("hosts: {}\n")
    (tmp_path / "runs").mkdir()
    at = time.time()
    recorded.run(tmp_path / "runs" / OLD, measurements.healthy(), at=at - 40 * 3600)
    recorded.run(tmp_path / "runs" / BAD, measurements.dead(), recorded.node("c3d4"), exit_code=9, at=at - 7200)
    both = recorded.node(), recorded.node(host={"name": "gpu12"})
    recorded.run(tmp_path / "runs" / NEW, None, *both, at=at - 600, command="restart")
    return tmp_path


def told(project, *words, code=0):
    done = CliRunner().invoke(history, [*words, "--project", str(project)])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


@pytest.mark.parametrize(
    ("words", "runs"),
    [
        ([], [NEW, BAD, OLD]),
        (["--profile", "kimi"], [NEW, BAD, OLD]),
        (["--profile", "other"], []),
        (["--host", "gpu12"], [NEW]),
        (["--host", "gpu?"], [NEW, BAD, OLD]),
        (["--failed"], [BAD]),
        (["--since", "1h"], [NEW]),
        (["--since", "2 days ago"], [NEW, BAD, OLD]),
        (["--ckpt", "c3d4"], [BAD]),
        (["--ckpt", "C3D4C3"], [BAD]),
        (["--ckpt", "ckpt/a1b2/"], [NEW, OLD]),
        (["--ckpt", "./ckpt/a1b2"], [NEW, OLD]),
        (["--ckpt", "c3d4/"], [BAD]),  # the end of its path: what was said as a relative one is kept as a whole one
        (["--ckpt", "pt/a1b2"], []),
        (["--ckpt", "c3d4", "--since", "1h"], []),
        (["--limit", "1", "--ckpt", "a1b2"], [NEW]),
    ],
    ids=" ".join,
)
def test_runs_are_chosen_by_what_they_were(project, words, runs):
    assert [run["id"] for run in json.loads(told(project, *words, "--json").stdout)] == runs
    assert [line.split()[0] for line in told(project, *words).stdout.splitlines()[1:]] == runs


def test_the_list_has_what_was_measured(project):
    bad = json.loads(told(project, "--failed", "--json").stdout)[0]
    assert (bad["accept_length"], bad["tok_s"], bad["speedup"]) == (1.0, 25.3, 0.94)
    assert (bad["draft"], bad["ckpt"]) == ("c3d4" * 16, "ckpt/c3d4")
    assert "1.00    25.3" in told(project, "--failed").stdout


def test_none_that_is_so_is_told_apart_from_none_at_all(project, tmp_path):
    assert "no run is like that" in told(project, "--profile", "other").stderr
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "inventory.yaml").write_text("hosts: {}\n")
    assert "no runs yet" in told(tmp_path / "empty").stderr


@pytest.mark.parametrize("words", [["last", "--failed"], ["--since", "soon"], ["--since", "-1h"]], ids=" ".join)
def test_what_means_nothing_is_refused(project, words):
    with pytest.raises(ConfigError):
        told(project, *words)


@pytest.mark.parametrize(
    ("text", "ago"),
    [("90m", timedelta(minutes=90)), ("2 days ago", timedelta(days=2)), ("1h30m", timedelta(hours=1.5))],
    ids=str,
)
def test_times_before_now_are_read(text, ago):
    assert when.since(text, NOW) == (NOW - ago).timestamp()


def test_days_begin_at_midnight_here():
    midnight = NOW.replace(hour=0, minute=0, second=0, microsecond=0)
    assert when.since("today", NOW) == midnight.timestamp()
    assert when.since(midnight.strftime("%Y-%m-%d"), NOW) == midnight.timestamp()
    assert when.since("yesterday", NOW) == (midnight - timedelta(days=1)).timestamp()
