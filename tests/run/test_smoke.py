"""`deploy smoke` on what runs: a server whose answers change while it runs, and what is recorded of them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from deploy.config.questions import Smoke
from deploy.deployment import state
from deploy.deployment.state import Place
from deploy.errors import DeployError
from deploy.events import Event
from deploy.inventory import Host
from deploy.remote import Remote
from deploy.steps.health import health
from deploy.steps.smoke import smoke
from deploy.transport.local import LocalTransport
from deploy.walk.recipe import Verb
from tests.project import EXAMPLES, Project, ended
from tests.run.test_odd_answers import ODD

CHAT = "/v1/chat/completions"
KEY = "sk-in-its-server-info"
DONE = "data: [DONE]\n\n"
MODEL = str(EXAMPLES / "target")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """One server for all of it; `answers.json` says what it answers from the next request on."""
    made = Project(tmp_path_factory.mktemp("smoke") / "project")
    odd = made.folder / "answers.json"
    odd.write_text("{}")
    env = {"ODD": f"@{odd}", "FAKE": json.dumps({"lifetime": 300})}
    made.fake(engine={"name": "sglang", "python": str(ODD)}, env=env)
    done = made.run("up", "profile=fake")
    assert done.code == 0, done.err
    yield made
    ended(made.folder)


def whole(said: str | None = None, thought: str | None = None, end: str = "stop") -> dict[str, Any]:
    message = {"role": "assistant", "content": said, "reasoning_content": thought}
    return {"body": json.dumps({"choices": [{"message": message, "finish_reason": end}]})}


def chunk(said: str = "", thought: str = "", end: str | None = None) -> str:
    delta = {"content": said or None, "reasoning_content": thought or None}
    return f"data: {json.dumps({'choices': [{'delta': delta, 'finish_reason': end}]})}\n\n"


def both(said: str = "", thought: str = "", end: str = "stop") -> dict[str, Any]:
    """The same answer, whole and as a stream."""
    return {CHAT: whole(said, thought, end), "stream": {"body": [chunk(said, thought), chunk(end=end), DONE]}}


def chat(body: str) -> dict[str, Any]:
    return {CHAT: {"body": body}}


def saying(message: Any) -> dict[str, Any]:
    return chat(json.dumps({"choices": [{"message": message}]}))


def models(body: str) -> dict[str, Any]:
    return {"/v1/models": {"body": body}}


def info(**fields: Any) -> dict[str, Any]:
    return {"/server_info": {"body": json.dumps({"api_key": KEY, **fields})}}


@dataclass(frozen=True)
class Case:
    """What it answers, and how the step ends: its exit code, some of its words, what it warns of."""

    odd: dict[str, Any]
    code: int = 0
    said: str = ""
    warned: str = ""
    smoke: dict[str, Any] = field(default_factory=dict)
    model: str = MODEL  # the path that is wished


QUICK = {"timeout": 0.5}
IDENTITY = {
    "all is well": Case({}, said="serves tiny"),
    "another model": Case(models('{"data": [{"id": "other"}]}'), 7, "it serves other, not tiny"),
    "it has loaded another model": Case(info(model_path="/models/other"), 7, "served: /models/other"),
    "it has loaded another draft": Case(
        info(model_path=MODEL, speculative_draft_model_path="/drafts/old"), 7, "served: /drafts/old"
    ),
    "it has loaded the hub's": Case(info(model_path="org/name"), said="serves tiny", model="org/name"),
    "it has loaded another one of the hub": Case(info(model_path="org/old"), 7, "served: org/old", model="org/name"),
    "it tells the hub's folder": Case(
        info(model_path="/cache/org--name"), said="serves tiny", warned="is not proven", model="org/name"
    ),
    "it names its model by another way": Case(info(model_path=f"{MODEL}/../target/"), said="serves tiny"),
    "it does not say what it has loaded": Case(info(), said="serves tiny"),  # its command line does
    "an older one knows the older path": Case({"/server_info": {"body": "no", "status": 404}}, said="serves tiny"),
    "it wants a key": Case({"/v1/models": {"body": "no", "status": 401}}, 7, "secrets: {NAME: api-key}"),
    "it forbids to ask": Case({"/server_info": {"body": "no", "status": 403}}, 7, "secrets: {NAME: api-key}"),
    "its list is a page": Case(models("<html>no</html>"), 7, "<html>no</html>"),
    "its list is half of one": Case(models('{"data": [{"id"'), 7, '{"data": [{"id"'),
    "its list is nothing but a list": Case(models("[]"), 7, "[]"),
    "its list is one of words": Case(models('["tiny"]'), 7, '["tiny"]'),
    "its list has no data": Case(models('{"data": null}'), 7, '{"data": null}'),
    "its list has a word as data": Case(models('{"data": "tiny"}'), 7, '{"data": "tiny"}'),
    "its list has words in data": Case(models('{"data": ["tiny"]}'), 7, '{"data": ["tiny"]}'),
    "its list is very deep": Case({"/v1/models": {"body": "[", "times": 200_000}}, 7, "[[[["),
    "its list is empty": Case(models(""), 7, "no list of models"),
    "its list has a number as id": Case(models('{"data": [{"id": 4}]}'), 7, "it serves 4, not tiny"),
    "its list is no HTTP": Case({"/v1/models": {"raw": "hello, who is there?\r\n\r\n"}}, 7, "who is there?"),
    "it resets the connection": Case({"/v1/models": {"reset": True}}, 7, "GET /v1/models: "),
    "what it has loaded is half an object": Case({"/server_info": {"body": '{"model'}}, said="serves tiny"),
    "it has loaded a number": Case(info(model_path=4, speculative_draft_model_path=[]), said="serves tiny"),
    "its schedulers are dead": Case(
        {"/server_info": {"seconds": 2, "body": "{}"}}, 7, "GET /server_info: no answer within 0.5 s", smoke=QUICK
    ),
    "it is not ready again": Case({"/v1/models": {"body": "starting", "status": 503}}, 7, "it is not ready"),
}

CAPITAL = {"ask": "capital of France?"}
ANSWERS = {
    "all is well": Case({}, said="2 + 2 = 4."),
    "it wants a key": Case({CHAT: {"body": "no", "status": 401}}, 8, "secrets: {NAME: api-key}"),
    "it is busy": Case({CHAT: {"body": "busy", "status": 503}}, 7, "busy"),
    "its backend is dead": Case({CHAT: {"seconds": 2, "body": "{}"}}, 8, "no answer within 0.5 s", smoke=QUICK),
    "choices are a word": Case(chat('{"choices": "abc"}'), 8, '"abc"'),
    "choices are null": Case(chat('{"choices": [null]}'), 8, "[null]"),
    "choices are an object": Case(chat('{"choices": {"a": 1}}'), 8, '{"a": 1}'),
    "choices are a number": Case(chat('{"choices": 4}'), 8, '"choices": 4'),
    "the message is a word": Case(saying("word 4"), 8, "word 4"),
    "the content is a number": Case(saying({"content": 4}), 8, '"content": 4'),
    "the content is an object": Case(saying({"content": {"text": "4"}}), 8, '"text": "4"'),
    "the content is parts": Case({**both("4"), **saying({"content": [{"type": "text", "text": "4"}]})}, said="'4'"),
    "the content is odd parts": Case(saying({"content": [None, 4, {"text": None}, {"type": "image"}]}), 8, "image"),
    "it is half of an answer": Case(chat('{"choices": ['), 8, '{"choices": ['),
    "it is very deep": Case({CHAT: {"body": '{"choices":', "times": 100_000}}, 8, "no JSON object"),
    "it is no HTTP": Case({CHAT: {"raw": "hello, who is there?\r\n\r\n"}}, 8, "who is there?"),
    "it resets the connection": Case({CHAT: {"reset": True}}, 8, "POST /v1/chat/completions: "),
    "it says nothing": Case(both(""), 8, "says nothing"),
    "it says white space": Case(both(" \n"), 8, "says nothing"),
    "the answer stands in its thoughts": Case(both(thought="so it is 4"), said="so it is 4"),
    "it is cut off, and right": Case(both("it is 4, because", end="length"), said="it is 4"),
    "it is cut off before it comes to it": Case(both("Let me", end="length"), 8, "cut off at smoke.max_tokens=100"),
    "it is wrong": Case(both("blue"), 8, "is it the right model?"),
    "it loses characters": Case(both("4 \ufffd\ufffd"), said="4", warned="2 characters that are none"),
    "it gives half a character": Case(both("4 \ud83d"), said="4", warned="1 characters that are none"),
    "it gives a character in two halves": Case(
        {**both("4 \U0001f600"), "stream": {"body": [chunk("4 \ud83d"), chunk("\ude00"), chunk(end="stop"), DONE]}},
        said="4 \U0001f600",
    ),
    "it gives up, with status 200": Case(chat('{"error": {"message": "no cheese"}}'), 8, "the server gives up"),
    "it is an error, with status 200": Case(chat('{"object": "error", "message": "no cheese"}'), 8, "no cheese"),
    "it is cut off within a character": Case(both("it is 4 \ufffd", end="length"), said="it is 4"),
    "it answers in two ways": Case({**both("it is 4"), CHAT: whole("4, of course")}, said="4", warned="in two ways"),
    "the stream says nothing": Case({**both(""), CHAT: whole("4")}, 8, "the streamed answer"),
    "the stream is none": Case({"stream": {"type": "text/html", "body": ["<html>"]}}, 8, "no stream of events"),
    "the stream stops half-way": Case({"stream": {"body": [chunk("4")]}}, 8, "it stops half-way"),
    "the stream hangs": Case({"stream": {"body": [], "then": "hang"}}, 8, "not a word for 0.5 s", smoke=QUICK),
    "the stream has no end": Case(
        {"stream": {"body": [chunk("4")], "times": 40, "pause": 0.05}}, 8, "not at its end after 0.5 s", smoke=QUICK
    ),
    "the stream is refused": Case({"stream": {"status": 500, "body": ["oh"]}}, 8, "answers 500"),
    "a further question": Case({}, said="and 1 more answer", smoke={"more": [CAPITAL]}),
    "a further one goes wrong": Case({}, 8, "not match 'Rome'", smoke={"more": [{**CAPITAL, "expect": "Rome"}]}),
}


def outcome(verb: Verb, served: Project, case: Case) -> tuple[int, str, list[str]]:
    """The step on what runs: its exit code, its words, and what it warns of."""
    (served.folder / "answers.json").write_text(json.dumps(case.odd))
    own = {"work": str(served.folder / "work"), "lock": str(served.folder / "lock")}
    told: list[Event] = []
    where = Host.model_validate({"name": "localhost", "transport": "local", **own})
    remote = Remote(where, LocalTransport(), told.append, threading.Event())
    machine = state.read(remote)
    run = machine.current("fake")
    assert run
    assert run.node
    remote.place = Place(machine, "fake", run.id)
    model = run.node.profile.model.model_copy(update={"path": case.model})
    profile = run.node.profile.model_copy(update={"smoke": Smoke(**case.smoke), "model": model})
    node = replace(run.node, profile=profile)
    try:
        code, said = 0, verb(node, remote)
    except DeployError as error:
        code, said = error.exit_code, str(error)
    assert KEY not in repr(told)
    return code, said, [event.text for event in told if event.kind == "finding"]


@pytest.mark.parametrize("case", IDENTITY)
def test_what_it_says_it_is_decides(served: Project, case: str) -> None:
    it = IDENTITY[case]
    code, said, warned = outcome(health, served, it)
    assert (code, it.said in said) == (it.code, True), said
    assert [it.warned in what for what in warned] == [True] * bool(it.warned), warned


@pytest.mark.parametrize("case", ANSWERS)
def test_what_it_answers_decides(served: Project, case: str) -> None:
    it = ANSWERS[case]
    code, said, warned = outcome(smoke, served, it)
    assert (code, it.said in said) == (it.code, True), said
    assert [it.warned in what for what in warned] == [True] * bool(it.warned), warned


def test_the_command_tells_what_both_steps_found(served: Project) -> None:
    (served.folder / "answers.json").write_text(json.dumps(both("4 \ufffd")))
    done = served.run("smoke")
    words = ("health  serves tiny", "WARN smoke: an answer has 1 characters", "done")
    assert (done.code, [word in done.err for word in words]) == (0, [True] * 3), done.err


def test_request_and_answer_are_in_the_record_whole(served: Project) -> None:
    (served.folder / "answers.json").write_text("{}")
    assert served.run("smoke").code == 0
    plain, streamed = served.told("exchange")
    assert plain["request"]["messages"] == [{"role": "user", "content": "Hello, what is 2+2?"}]
    assert (plain["request"]["temperature"], streamed["request"]["temperature"]) == (0, 0)
    assert plain["answer"]["choices"][0]["message"]["content"] == streamed["answer"]["content"] == "2 + 2 = 4."
    assert (streamed["request"]["stream"], streamed["answer"]["finish_reason"]) == (True, "stop")


def test_what_is_no_number_makes_no_broken_record(served: Project) -> None:
    odd = whole("2 + 2 = 4.")["body"][:-1] + ', "nan": NaN, "huge": 1e999}'
    (served.folder / "answers.json").write_text(json.dumps(chat(odd)))
    assert served.run("smoke").code == 0
    told = served.told("exchange")[0]["answer"]
    assert (told["nan"], told["huge"]) == ("NaN", "1e999")


def test_a_question_without_an_answer_is_in_the_record_with_what_came_of_it(served: Project) -> None:
    (served.folder / "answers.json").write_text(json.dumps({CHAT: {"body": "<html>"}}))
    assert served.run("smoke").code == 8
    (only,) = served.told("exchange")
    assert (only["error"].endswith("no JSON object"), only["evidence"]) == (True, "<html>")


def test_who_serves_is_in_the_record(served: Project) -> None:
    (served.folder / "answers.json").write_text("{}")
    assert served.run("smoke").code == 0
    (told,) = served.told("identity")
    (process,) = told["processes"]
    stat = Path(f"/proc/{process['pid']}/stat").read_text().rpartition(") ")[2].split()
    assert (process["start_ticks"], told["run"]) == (int(stat[19]), served.status()["run"])
    assert (told["served"], told["loaded"]["model"]) == ("tiny", MODEL)
