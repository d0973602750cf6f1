"""`deploy ask` through the real command line: answers of any shape, and what becomes of each."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.project import PATIENCE, Done, Project, ended, until

ODD = Path(__file__).parents[1] / "odd_server.py"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    made = Project(tmp_path_factory.mktemp("asked") / "project")
    made.fake(engine={"name": "sglang", "python": str(ODD)}, fake={"reasoning": "both"})
    done = made.run("up", "profile=fake")
    assert done.code == 0, done.err
    yield made
    ended(made.folder)


def chunk(said: str = "", thought: str = "", end: str | None = None, **more: Any) -> str:
    delta = {"content": said or None, "reasoning_content": thought or None}
    return f"data: {json.dumps({'choices': [{'delta': delta, 'finish_reason': end}], **more})}\n\n"


LAST = {"object": "chat.completion.chunk", "choices": [], "usage": {"completion_tokens": 7}}
USAGE = f"data: {json.dumps(LAST)}\n\n"
DONE = "data: [DONE]\n\n"


def odd(*body: str, **more: Any) -> str:
    return json.dumps({"body": body, **more})


def ask(project: Project, question: str, *words: str) -> Done:
    return project.run("ask", question, *words, timeout=PATIENCE)


LAST_LINE = re.compile(
    r"localhost: (\d+) tokens in [\d.]+ s, [\d.]+ tokens/s, first after [\d.]+ s, accept length (.*)"
)


def test_a_question_is_answered_and_measured(served: Project) -> None:
    done = ask(served, "Hello, what is 2+2?")
    assert (done.code, done.out.strip()[:1] != "") == (0, True)
    assert "I think." not in done.out
    thought, last = done.err.splitlines()
    found = LAST_LINE.fullmatch(last)
    assert (thought, bool(found)) == ("| I think.", True), done.err
    assert re.match(r"[34]\.\d\d \(\d+ drafts kept in \d+ steps\)", found[2])  # type: ignore[index]


def test_it_is_one_document_for_who_wants_json(served: Project) -> None:
    told = ask(served, "Hello, what is 2+2?", "--json", "profile=fake").json
    assert told["answer"]
    assert (told["reasoning"], told["finish_reason"], told["exit_code"]) == ("I think.", "stop", 0)
    assert told["tokens"] > 0
    assert told["accept_length"] == round(1 + told["accepted"] / told["steps"], 3)
    assert 0 < told["time_to_first_token"] <= told["seconds"]
    assert (told["host"], told["model"]) == ("localhost", "tiny")


def test_what_is_asked_is_what_the_options_say(served: Project) -> None:
    question = json.dumps({"asked": True})
    options = ("--system", "Be brief.", "--max-tokens", "7", "--temperature", "0.5")
    asked = json.loads(ask(served, question, *options).out)
    assert [message["role"] for message in asked["messages"]] == ["system", "user"]
    assert (asked["messages"][0]["content"], asked["max_tokens"], asked["temperature"]) == ("Be brief.", 7, 0.5)
    plain = json.loads(ask(served, question).out)
    assert ([message["role"] for message in plain["messages"]], plain["temperature"]) == (["user"], 0)


def test_a_question_may_come_from_stdin(served: Project) -> None:
    done = subprocess.run(
        served.argv("ask", "-"), cwd=served.folder, env=served.environ, input=json.dumps({"asked": True}),
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert json.loads(json.loads(done.stdout)["messages"][0]["content"]) == {"asked": True}


ANSWERS: list[tuple[str, str, str, str]] = [  # what the server sends, stdout, stderr
    ("plain", odd(chunk("a"), chunk("b", end="stop"), DONE), "ab\n", "tokens not told in "),
    ("counted", odd(chunk("a", end="stop"), USAGE, DONE), "a\n", "7 tokens in .* accept length not measured: "),
    ("cut off", odd(chunk("a", end="length"), DONE), "a\n", "; cut off at --max-tokens 1024"),
    ("without [DONE]", odd(chunk("a", end="stop")), "a\n", ""),
    ("kept alive by comments", odd(": ping\n\n", chunk("a", end="stop"), ":\n\n", DONE), "a\n", ""),
    ("in small pieces", odd(*chunk("aé", end="stop"), DONE), "aé\n", ""),
    ("with \\r", odd(chunk("a", end="stop").replace("\n", "\r"), DONE), "a\n", ""),
    ("data in two lines", odd(chunk("a", end="stop").replace('"choices"', '\ndata: "choices"'), DONE), "a\n", ""),
    ("with \\r\\n", odd(chunk("a", end="stop").replace("\n", "\r\n"), DONE), "a\n", ""),
    ("a list of parts", odd(chunk([{"type": "text", "text": "a"}], end="stop"), DONE), "a\n", ""),  # type: ignore[arg-type]
    ("thoughts", odd(chunk(thought="hm\nso"), chunk("a", end="stop"), DONE), "a\n", r"\| hm\n\| so\n"),
    ("colours", odd(chunk("\x1b[31mred\x1b[0m", end="stop"), DONE), "red\n", ""),
    ("a title, cut in two", odd(chunk("a\x1b]0;ti"), chunk("tle\x07b", end="stop"), DONE), "ab\n", ""),
    ("a clipboard write", odd(chunk("\x1b]52;c;aGk=\x07a", thought="\x1b[2J"), chunk(end="stop"), DONE), "a\n", ""),
    ("an escape at its end", odd(chunk("a\x1b[3", end="stop"), DONE), "a", ""),
    ("impossible counters", odd(chunk("a", end="stop", sglext={"spec_tokens_details": {
        "spec_verify_ct": 1, "spec_num_correct_drafts": 9, "spec_num_proposed_drafts": 3}}), USAGE, DONE), "a\n",
     "not measured: 9 drafts accepted in 1 verify steps"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "out", "err"), [case[1:] for case in ANSWERS], ids=[case[0] for case in ANSWERS])
def test_an_answer_of_any_shape(served: Project, body: str, out: str, err: str) -> None:
    done = ask(served, body)
    assert (done.code, done.out.startswith(out), bool(re.search(err, done.err))) == (0, True, True), done
    assert "\x1b" not in done.out + done.err


def test_what_a_terminal_cannot_show_is_replaced(served: Project) -> None:
    served.environ |= (ascii_only := {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"})
    done = ask(served, odd(chunk("\u00e9 \u2603", end="stop"), DONE))
    for name in ascii_only:
        del served.environ[name]
    assert (done.code, done.out) == (0, "? ?\n"), done.err


FAILURES: list[tuple[str, str, int, str]] = [
    ("HTML", odd("<html>", type="text/html"), 8, "answers no stream of events, but text/html"),
    ("JSON", odd("{}", type="application/json"), 8, "answers no stream of events, but application/json"),
    ("an error", odd("<h1>oh</h1>", status=500, type="text/html"), 8, "answers 500"),
    ("not ready", odd("loading", status=503), 7, "it is not ready"),
    ("a wrong key", odd("no", status=401), 8, "API key"),
    ("half of it", odd(chunk("a")), 8, "stops half-way"),
    ("half of a line", odd(chunk("a"), chunk("b")[:20]), 8, "is no JSON object"),
    ("a reset", odd(chunk("a"), then="reset"), 8, "breaks off"),
    ("silence", odd(chunk("a"), then="hang"), 8, "not a word for 0.5 s"),
    ("signs of life alone", odd(chunk("a"), *[": here\n\n"] * 100, pause=0.1), 8, "not a word for 0.5 s"),
    ("an error in it", odd(chunk("a"), 'data: {"error": {"message": "out of memory"}}\n\n'), 8, "out of memory"),
    ("another kind of it", odd('error: {"message": "too long"}\n\n'), 8, "too long"),
    ("an error without a word", odd('data: {"object": "error"}\n\n'), 8, "the server gives up"),
    ("no JSON", odd("data: garbage\n\n"), 8, "is no JSON object"),
    ("a list", odd("data: []\n\n"), 8, "is no JSON object"),
    ("nothing", odd(chunk(end="stop"), DONE), 8, "nothing is said"),
    ("a line without end", odd("data: " + "x" * 1000, times=1200), 8, "does not end"),
]


@pytest.mark.parametrize(("body", "code", "what"), [case[1:] for case in FAILURES], ids=[case[0] for case in FAILURES])
def test_what_is_no_answer_is_told(served: Project, body: str, code: int, what: str) -> None:
    done = ask(served, body, "--timeout", "0.5")
    assert (done.code, what in done.err, "Traceback" in done.err) == (code, True, False), done.err
    assert len(done.err) < 4000


def test_ctrl_c_ends_the_request_too(served: Project) -> None:
    log = Path(served.status()["folder"]) / "server.log"
    with served.started("ask", odd(chunk("half an ans"), then="hang")) as asked:
        assert asked.stdout
        assert asked.stdout.read(11) == "half an ans"
        asked.send_signal(signal.SIGINT)
        _, err = asked.communicate(timeout=PATIENCE)
        assert (asked.returncode, "the request with it" in err, "Traceback" in err) == (130, True, False), err
    until(lambda: "the client is gone" in log.read_text(), what="the server sees that nobody waits any more")


def test_who_has_seen_enough_ends_it(served: Project) -> None:
    with served.started("ask", odd(*[chunk("word ")] * 200, pause=0.05)) as asked:
        assert asked.stdout
        asked.stdout.read(4)
        asked.stdout.close()
        assert asked.wait(timeout=20) == 1


WRONG: list[tuple[tuple[str, ...], str]] = [
    ((), "there is no question"),
    (("  ",), "there is no question"),
    (("What is", "2+2?"), "2 questions"),
    (("Hello?", "profle=fake"), "2 questions"),
    (("Hello?", "profile=other"), "no host has a deployment other"),
    (("Hello?", "--max-tokens", "0"), "max-tokens"),
    (("Hello?", "--temperature", "-1"), "temperature"),
    (("Hello?", "--jsonl"), "no events"),
]


@pytest.mark.parametrize(("words", "what"), WRONG)
def test_a_wrong_command_line_is_told(served: Project, words: tuple[str, ...], what: str) -> None:
    done = served.run("ask", *words)
    assert (done.code, what in done.err) == (2, True), done.err


def test_a_server_that_is_away_is_told(project: Project) -> None:
    project.fake(fake={"die_at": "weights"})
    assert project.run("up", "profile=fake").code == 6
    done = ask(project, "Hello?")
    assert (done.code, "does not run: " in done.err) == (7, True), done.err
    assert ask(project, "Hello?", "--json").json["exit_code"] == 7


def test_a_server_that_loads_is_told(project: Project) -> None:
    project.fake(fake={"silent_at": "graphs"})
    with project.started("up", "profile=fake") as up:
        until(lambda: project.run("status", "--json").out.count('"loading"'))
        done = ask(project, "Hello?")
        up.kill()
    assert (done.code, "nobody listens on port" in done.err) == (7, True), done.err
