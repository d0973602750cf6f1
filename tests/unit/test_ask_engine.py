"""Asking an engine's loader, and remembering what it said: programs that behave in every way, run by a real Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from deploy import host
from deploy.host import ask_engine
from tests.project import PATIENCE

# Stands for `loadcheck`: counts how often it is really asked, and answers with what it was asked.
PROGRAM = """
import json, os, sys
told = {"version": os.environ["VERSION"]}
if sys.argv[2] == "answer":
    with open(os.environ["COUNT"], "a") as file:
        file.write("x")
    asked = json.load(sys.stdin)
    told.update(placed=asked["tensors"], refused=[], unfilled=[], parameters={}, error="", **asked.get("more", {}))
print("a line of the engine's own")
print(json.dumps(told))
"""


@pytest.fixture
def job(tmp_path: Path) -> dict[str, Any]:
    return {
        "python": sys.executable,
        "env": {"VERSION": "1.0", "COUNT": str(tmp_path / "count")},
        "engine": "sglang",
        "program": PROGRAM,
        "question": {"tensors": [["a", "b", None, ""]]},
        "cache": str(tmp_path / "cache"),
        "timeout": 20.0,
    }


def asked(job: dict[str, Any]) -> int:
    count = Path(job["env"]["COUNT"])
    return len(count.read_text()) if count.exists() else 0


def kept(job: dict[str, Any]) -> Path:
    (found,) = Path(job["cache"]).iterdir()
    return found


def test_it_is_asked_once_and_remembered(job: dict[str, Any]) -> None:
    first, second = ask_engine.ask(job), ask_engine.ask(job)
    assert (first["placed"], first.get("cached"), asked(job)) == ([["a", "b", None, ""]], None, 1)
    assert second == {**first, "cached": True}


CHANGES = {
    "another question": {"question": {"tensors": []}},
    "another program": {"program": PROGRAM + "# a newer one\n"},
    "another version": {"env": {"VERSION": "1.1"}},
    "another variable": {"env": {"SGLANG_USE_CPU_ENGINE": "1"}},
    "nothing is kept": {"cache": ""},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_changes_the_answer_asks_anew(job: dict[str, Any], change: dict[str, Any]) -> None:
    ask_engine.ask(job)
    changed = {**job, **change, "env": {**job["env"], **change.get("env", {})}}
    assert "cached" not in ask_engine.ask(changed)
    assert asked(job) == 2


def test_a_failed_attempt_is_not_remembered(job: dict[str, Any]) -> None:
    job["question"]["more"] = {"unsupported": True}
    ask_engine.ask(job)
    assert "cached" not in ask_engine.ask(job)
    assert not Path(job["cache"]).exists()


def edited(path: Path) -> None:
    path.write_text(path.read_text().replace('["a", "b"', '["a", "c"'))


def renamed(path: Path) -> None:
    path.write_text(path.read_text().replace('{"key": "', '{"key": "0'))


SPOILT = {
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:-5]),
    "empty": lambda path: path.write_bytes(b""),
    "no text": lambda path: path.write_bytes(b"\xff\xfe\x00"),
    "another document": lambda path: path.write_text('{"key": 1}'),
    "a list": lambda path: path.write_text("[]"),
    "very deep": lambda path: path.write_text("[" * 100_000),
    "an answer that was edited": edited,
    "another question's": renamed,
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_a_spoilt_memory_is_only_slower(job: dict[str, Any], spoil: Any) -> None:
    first = ask_engine.ask(job)
    spoil(kept(job))
    assert ask_engine.ask(job) == first
    assert asked(job) == 2
    assert ask_engine.ask(job)["cached"] is True  # it was written anew


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file away")
def test_another_users_memory_counts_for_nothing(job: dict[str, Any]) -> None:
    ask_engine.ask(job)
    os.chown(kept(job), 12345, 12345)
    assert "cached" not in ask_engine.ask(job)


def test_without_a_place_to_keep_it_the_answer_is_the_same(job: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder would be")
    assert ask_engine.ask(job)["placed"] == [["a", "b", None, ""]]


def test_the_oldest_answers_go(job: dict[str, Any], tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    for number in range(ask_engine.KEPT + 10):
        path = cache / f"{number:03}.json"
        path.write_text("{}")
        os.utime(path, (number, number))
    (cache / "died.tmp").write_text("{")
    os.utime(cache / "died.tmp", (1, 1))
    assert "cached" not in ask_engine.ask(job)
    left = {path.name for path in cache.iterdir()}
    assert (len(left), "010.json" in left, "011.json" in left, "died.tmp" in left) == (64, False, True, False)
    assert ask_engine.ask(job)["cached"] is True


FINE = """
import json, sys, time
if sys.argv[2] == "fingerprint":
    print(json.dumps({"version": "1"}))
    sys.exit()
"""


def program(body: str) -> str:
    """One whose fingerprint is fine, and which then does as it likes."""
    return FINE + body


NO_ANSWERS = {
    "dies with words": ("sys.exit('no space left')", "ended with status 1: no space left"),
    "says nothing": ("pass", "ended with status 0"),
    "says no JSON": ("print('Killed')", "ended with status 0: Killed"),
    "a list": ("print('[1]')", "ended with status 0"),
    "another document": ("print(json.dumps({'version': '1', 'placed': {}}))", "ended with status 0"),
    "killed": ("import os; os.kill(os.getpid(), 9)", "ended with status -9"),
    "hangs": ("time.sleep(60)", "gave no answer within 0.5 s"),
    "deep": ("print('[' * 100000)", "ended with status 0"),
}


@pytest.mark.parametrize(("body", "words"), NO_ANSWERS.values(), ids=NO_ANSWERS)
def test_what_is_no_answer_is_told(job: dict[str, Any], body: str, words: str) -> None:
    timeout = 0.5 if "hangs" in words or "within" in words else 20.0
    told = ask_engine.ask({**job, "program": program(body), "timeout": timeout})
    assert told["unsupported"]
    assert words in told["error"]


PYTHONS = {
    "is not there": ("/nowhere/bin/python", "does not exist"),
    "a folder": ("/tmp", "does not exist, or cannot be executed"),
    "another program": ("/bin/true", "ended with status 0"),
}


@pytest.mark.parametrize(("python", "words"), PYTHONS.values(), ids=PYTHONS)
def test_an_interpreter_that_is_none_is_told(job: dict[str, Any], python: str, words: str) -> None:
    told = ask_engine.ask({**job, "python": python})
    assert told["unsupported"]
    assert words in told["error"]


def test_an_interpreter_in_the_users_home(job: dict[str, Any], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (tmp_path / "python").chmod(0o755)
    assert ask_engine.ask({**job, "python": "~/python"})["placed"]


def test_what_hangs_is_ended_with_its_children(job: dict[str, Any], tmp_path: Path) -> None:
    child = tmp_path / "child"
    start = f"open({str(child)!r}, 'w').write(str(subprocess.Popen(['sleep', '60']).pid))"
    body = f"import subprocess\n{start}\ntime.sleep(60)"
    ask_engine.ask({**job, "program": program(body), "timeout": 2.0})
    pid = int(child.read_text())
    deadline = time.monotonic() + PATIENCE
    while Path(f"/proc/{pid}").exists() and "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text():
        assert time.monotonic() < deadline, "its child lives on"
        time.sleep(0.01)


def test_it_runs_as_a_program_of_its_own(job: dict[str, Any]) -> None:
    argv = [sys.executable, "-I", "-c", host.source("ask_engine")]
    done = subprocess.run(argv, input=json.dumps(job).encode(), capture_output=True, check=True)
    assert json.loads(done.stdout)["placed"] == [["a", "b", None, ""]]
