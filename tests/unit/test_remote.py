"""What our programs on hosts answer, and what is no answer."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from deploy import remote as remotes
from deploy.errors import RemoteFailed
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
