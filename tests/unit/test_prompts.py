"""What is asked to measure: the sets that come with the tool, a user's file, and the order of rounds."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from deploy import prompts
from deploy.errors import ConfigError
from deploy.measuring.prompts import Prompt, Set, of_texts, parse

KINDS = ("arithmetic", "code", "prose", "reasoning")


def line(**said: object) -> str:
    return json.dumps(said)


@pytest.mark.parametrize("kind", KINDS)
def test_each_class_that_comes_with_the_tool_has_prompts_of_its_own(kind: str) -> None:
    found = prompts.wished(kind)
    assert len(found.prompts) >= 4
    assert {prompt.kind for prompt in found.prompts} == {kind}
    assert all(prompt.name.startswith(f"{kind}/") for prompt in found.prompts)


def test_mixed_has_two_of_each_class() -> None:
    found = prompts.wished("mixed")
    assert found.name == "mixed"
    assert Counter(prompt.kind for prompt in found.prompts) == dict.fromkeys(KINDS, 2)
    assert set(KINDS) == set(prompts.shipped())


def test_another_set_has_another_digest() -> None:
    sets = [prompts.wished(name) for name in ("mixed", *KINDS)] + [prompts.wished(["a"]), prompts.wished(["b"])]
    assert len({one.digest for one in sets}) == len(sets)
    assert prompts.wished(["a"]).digest == sets[-2].digest


FORMS: dict[str, tuple[str, Prompt]] = {
    "a prompt": (line(prompt="hi"), Prompt("own/1", "own", (("user", "hi"),))),
    "its class and name": (
        line(prompt="hi", **{"class": "code", "id": "sort"}),
        Prompt("code/sort", "code", (("user", "hi"),)),
    ),
    "a number as its name": (line(prompt="hi", id=7), Prompt("own/7", "own", (("user", "hi"),))),
    "messages": (
        line(messages=[{"role": "system", "content": "short"}, {"role": "user", "content": "hi"}]),
        Prompt("own/1", "own", (("system", "short"), ("user", "hi"))),
    ),
    "messages of several turns, up to the last question": (
        line(
            messages=[
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": "ho"},
                {"role": "user", "content": "more"},
                {"role": "assistant", "content": "no"},
            ]
        ),
        Prompt("own/1", "own", (("user", "hi"), ("assistant", "ho"), ("user", "more"))),
    ),
    "ShareGPT's form, whose first question is asked": (
        line(
            conversations=[
                {"from": "human", "value": "hi"},
                {"from": "gpt", "value": "ho"},
                {"from": "human", "value": "more"},
            ]
        ),
        Prompt("own/1", "own", (("user", "hi"),)),
    ),
    "other ends of lines in a text": (
        '{"prompt": "a\u2028b\x85c"}\r',
        Prompt("own/1", "own", (("user", "a\u2028b\x85c"),)),
    ),
    "a list of objects": (f"[{line(prompt='hi')}]", Prompt("own/1", "own", (("user", "hi"),))),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_user_s_file_may_have(form: str) -> None:
    text, expected = FORMS[form]
    assert parse(f"\n{text}\n\n", "mine.jsonl") == (expected,)


WRONG = {
    "no JSON": ("oops", "mine.jsonl:2: is no JSON: Expecting value"),
    "a misspelt key": (line(promt="hi"), 'mine.jsonl:2: has neither "prompt" nor "messages"'),
    "an empty prompt": (line(prompt=" "), "mine.jsonl:2: a prompt should be a text, not"),
    "a prompt that is none": (line(prompt=3), "mine.jsonl:2: a prompt should be a text, not 3"),
    "an unknown role": (line(messages=[{"role": "bot", "content": "x"}]), 'mine.jsonl:2: a message has the role "bot"'),
    "a role that is no word": (line(messages=[{"role": ["user"], "content": "x"}]), 'a message has the role ["user"]'),
    "a message that is none": (line(messages=["x"]), 'mine.jsonl:2: a message should be an object, not "x"'),
    "nobody asks": (line(messages=[{"role": "system", "content": "x"}]), "mine.jsonl:2: has no message of a user"),
    "a name twice": (line(prompt="x", id="1"), "mine.jsonl:2: there is a prompt 'own/1' already"),
    "a class that is no word": (line(prompt="x", **{"class": ["a"]}), "mine.jsonl:2: 'class' should be a word"),
    "a number": ("5", "mine.jsonl:2: is no JSON object, but 5"),
    "nesting without end": ("[" * 100000, "mine.jsonl:2: is no JSON"),
}


@pytest.mark.parametrize("case", WRONG)
def test_each_wrong_line_is_told_with_its_place(case: str) -> None:
    text, expected = WRONG[case]
    with pytest.raises(ConfigError) as failed:
        parse(f"{line(prompt='fine')}\n{text}\n{line(prompt='also fine')}\nnor this", "mine.jsonl")
    assert expected in failed.value.evidence
    assert "mine.jsonl:4: is no JSON" in failed.value.evidence
    assert failed.value.exit_code == 2


def test_a_file_may_begin_with_the_mark_of_its_encoding_and_a_class_may_have_parts() -> None:
    (prompt,) = parse("\ufeff" + line(prompt="hi", **{"class": "code/python", "id": "sort"}), "mine.jsonl")
    assert parse(Set("mine.jsonl", (prompt,)).lines(), "prompts.jsonl") == (prompt,)


@pytest.mark.parametrize("text", ["", "\n\n", "[]"])
def test_a_file_without_prompts_is_told(text: str) -> None:
    with pytest.raises(ConfigError, match=r"mine\.jsonl has no prompts"):
        parse(text, "mine.jsonl")


def test_a_file_is_read_and_named_by_its_name(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text(line(prompt="hi"))
    assert prompts.wished(str(file)) == Set("mine.jsonl", of_texts(["hi"]))
    with pytest.raises(ConfigError, match="cannot be read"):
        prompts.wished(str(tmp_path / "not there.jsonl"))
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        prompts.wished(str(file))


def test_a_set_that_is_not_there_is_told_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError) as failed:
        prompts.wished("reasonning")
    assert failed.value.remedy == "did you mean reasoning?"


def test_rounds_ask_all_in_an_order_that_only_the_seed_changes() -> None:
    asked = prompts.wished("mixed")
    first = asked.round(1, 1, seed=0)
    assert sorted(prompt.name for prompt in first) == sorted(prompt.name for prompt in asked.prompts)
    assert first == asked.round(1, 1, seed=0)
    assert len({asked.round(1, number, seed) for number in range(1, 4) for seed in (0, 1)}) == 6


@pytest.mark.parametrize(("concurrency", "requests"), [(1, 8), (4, 8), (5, 10), (32, 64)])
def test_a_round_keeps_all_streams_busy_and_asks_each_as_often_as_the_others(concurrency: int, requests: int) -> None:
    asked = prompts.wished("mixed")
    names = Counter(prompt.name for prompt in asked.round(concurrency, 1, 0))
    assert names.total() == requests
    assert max(names.values()) - min(names[prompt.name] for prompt in asked.prompts) <= 1


@pytest.mark.parametrize("name", ["mixed", *KINDS])
def test_what_was_asked_is_kept_as_a_file_that_asks_the_same(name: str) -> None:
    asked = prompts.wished(name)
    again = Set("prompts.jsonl", parse(asked.lines(), "prompts.jsonl"))
    assert (again.prompts, again.digest) == (asked.prompts, asked.digest)
