"""How waiting ends for a server that misbehaves: the exit code, the words, and how soon after the moment it is told."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.project import PATIENCE, Project, until
from tests.run.test_odd_answers import ODD

READY = {"deadline": 25, "stall": 2}  # seconds


@dataclass(frozen=True)
class Ending:
    """What it does wrong, the exit code of `up`, words of the failure, and words said on the way.

    `noticed` is the server's own stamp of the moment, and the seconds from then until it was told: at least, at most.
    """

    fake: dict[str, Any]
    code: int
    words: tuple[str, ...] = ()
    said: str = ""
    noticed: tuple[str, float, float] | None = None
    fields: dict[str, Any] = field(default_factory=dict)


ENDINGS = {
    "its CPU is busy, and that is no life": Ending(
        {"silent_at": "graphs", "meanwhile": "spin"},
        7,
        ("no sign of life", "in target graphs for", "it hangs in the midst of capturing graphs"),
        noticed=("silent", 2.0, 5.0),
    ),
    "it compiles, longer than it may be silent": Ending(
        {"silent_at": "graphs", "meanwhile": "compile", "silent_seconds": 3.5}, 0, said="nvcc"
    ),
    "a scheduler is killed, and its launcher lives": Ending(
        {"children": 2, "phase_seconds": {"weights": 2.5}, "loses": "kv", "silent_at": "graphs"},
        6,
        ("has lost sglang::scheduler_TP1", "killed by signal 9"),
        said="sglang::scheduler_TP1",
        noticed=("dead", 0.0, 1.5),
    ),
    "it says that it cannot go on, and lives": Ending(
        {"die_at": "weights", "lingers": True}, 6, ("is beyond help", "the GPU is full while weights load")
    ),
    "it dies of a signal": Ending(
        {"die_at": "kv", "die_error": "none", "die_signal": "SEGV"},
        6,
        ("exit code 139", "SIGSEGV"),
        said="it ended with exit code 139",
        noticed=("dead", 0.0, 1.5),
    ),
    "it wants a key": Ending({"api_key": "k", "codes": {"/health_generate": 401}}, 7, ("refuses us", "401")),
    "it says 200, and breaks off each generation": Ending({"drop": "/v1/chat"}, 7, ("generates nothing",)),
    "it says 200, and each generation fails": Ending(
        {"codes": {"/v1/chat/completions": 500}}, 7, ("generates nothing", "completions: 500")
    ),
    "it answers nothing": Ending(
        {"hang": "/health_generate"}, 7, ("does not answer",), fields={"ready": {"deadline": 3, "stall": 60}}
    ),
    "it says 200, and hangs on each generation": Ending(
        {"hang": "/v1/chat"}, 7, ("does not answer", "POST /v1/chat"), fields={"ready": {"deadline": 3, "stall": 60}}
    ),
    "it says 200, and generates nothing": Ending(
        {"dead_backend": True},
        7,
        ("answers otherwise", "health_generate: 503"),
        fields={"ready": {"deadline": 4, "stall": 60}},
    ),
}


@pytest.mark.parametrize("case", ENDINGS)
def test_waiting_ends_as_it_should_and_says_why(project: Project, case: str) -> None:
    ending = ENDINGS[case]
    project.fake(fake={**ending.fake, "stamps": str(project.folder)}, **{"ready": READY, **ending.fields})
    done = project.run("up", "profile=fake")
    assert (done.code, [words for words in ending.words if words not in done.err]) == (ending.code, []), done.err
    events = project.events()
    said = [event.get("text", "") for event in events if event["kind"] == "said"]
    assert any(ending.said in text for text in said), said
    if ending.noticed:
        stamp, least, most = ending.noticed
        told = next(event["at"] for event in events if "gone" in event.get("facts", {}) or event["kind"] == "failed")
        seconds = told - float((project.folder / stamp).read_text())
        assert least <= seconds <= most


def test_one_that_is_not_ready_at_once_is_asked_ever_less_often(project: Project) -> None:
    project.fake(fake={"unready_seconds": 2.5})
    assert project.run("up", "profile=fake").code == 0
    log = (Path(project.status()["folder"]) / "server.log").read_text()
    asked = log.count('"GET /health_generate HTTP/1.1" 503')
    assert 3 <= asked <= 10, asked  # 0.05, 0.1, 0.2, ... s between them


def test_a_busy_one_that_is_adopted_is_asked_again_whatever_the_end_of_its_log_says(project: Project) -> None:
    odd = project.folder / "odd.json"
    odd.write_text("{}")
    engine = {"name": "sglang", "python": str(ODD)}
    project.fake(engine=engine, env={"ODD": f"@{odd}"}, ready={"deadline": 10, "stall": 60})
    assert project.run("up", "profile=fake").code == 0
    log = Path(project.status()["folder"]) / "server.log"
    with log.open("a") as more:
        more.write("Receive: text='what does [Errno 98] mean?'\n" * 50_000)
    odd.write_text(json.dumps({"/health_generate": {"status": 503, "body": "busy", "seconds": 3}}))
    with project.started("up", "profile=fake") as again:
        until(lambda: '"GET /health_generate HTTP/1.1" 503' in log.read_text()[-1000:], what="a first answer")
        odd.write_text("{}")
        _, err = again.communicate(timeout=PATIENCE)
    assert (again.returncode, "launch" in err) == (0, False), err
