"""What our programs on hosts answer, and what is no answer."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from deploy import remote as remotes
from deploy.errors import NoPython, RemoteFailed
from deploy.inventory import Host
from deploy.remote import Remote
from deploy.transport.local import LocalTransport


@pytest.fixture
def remote(tmp_path):
    lock = tmp_path / "lock"
    lock.write_text("token\n")
    made = Remote(
        Host.model_validate({"name": "here", "transport": "local"}), LocalTransport(), print, threading.Event()
    )
    made.lease = cast("Any", SimpleNamespace(path=str(lock), token="token"))
    return made


@pytest.mark.parametrize("method", ["python", "change_python"])
def test_an_answer_beyond_the_usual_limit_comes_whole(remote, method):
    size = remotes.SHORT * 3 // 2
    assert getattr(remote, method)(f"print('[\"' + 'x' * {size} + '\"]')") == ["x" * size]


NO_ANSWERS = [
    ("nothing", "pass", ""),
    ("half of it", "print('{\"a\": [1, 2')", '{"a": [1, 2'),
    ("words before it", "print('Welcome to gpu1'); print('[1]')", "Welcome to gpu1"),
    ("long words", "print('begin' + 'x' * 100000 + 'end')", "xend"),
    ("very deep", "print('[' * 200000)", "[[["),
]


@pytest.mark.parametrize("method", ["python", "change_python"])
@pytest.mark.parametrize(("source", "words"), [case[1:] for case in NO_ANSWERS], ids=[case[0] for case in NO_ANSWERS])
def test_what_is_no_json_is_told_with_its_first_and_last_words(remote, method, source, words):
    with pytest.raises(RemoteFailed, match="our program answers no JSON") as caught:
        getattr(remote, method)(source)
    assert words in caught.value.evidence
    assert len(caught.value.evidence) < 1500


def test_an_answer_that_was_cut_says_so(remote, monkeypatch):
    monkeypatch.setattr(remotes, "LONG", 1000)
    with pytest.raises(RemoteFailed, match="its beginning is lost"):
        remote.python("print('[\"' + 'x' * 5000 + '\"]')")


@pytest.mark.parametrize(
    ("status", "words", "told"),
    [
        (127, "sh: 5: python3: not found", "there is no python3"),
        (126, "timeout: failed to run command 'python3': Permission denied", "there is no python3"),
        (1, '  File "<string>", line 3\nSyntaxError: future feature annotations is not defined', "is too old"),
        (127, "bash: line 1: exec: timeout: not found", ""),
        (1, "cannot read /w: Permission denied", ""),
        (2, "SyntaxError", ""),
        (None, "", ""),
    ],
)
def test_a_host_without_a_python_is_told_apart(status, words, told):
    found = NoPython.seen("gpu1", status, words)
    assert (found is not None) == bool(told)
    if found:
        assert found.exit_code == 5
        assert told in found.what
        assert found.evidence == words.strip()
