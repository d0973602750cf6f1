"""One look at a host: the questions of all facts by one program; who breaks or hangs is told, and so are the others."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from deploy import host, looking
from deploy.errors import RemoteFailed
from deploy.facts import About, Answer, Command, Fact, Facts, Program, disks, processes, system
from deploy.inventory import Host
from deploy.remote import Remote
from deploy.transport.local import LocalTransport

SLOW = 0.6  # seconds that a question may take


def asked(questions: dict[str, Any], programs: dict[str, str] | None = None, seconds: float = 30.0) -> Any:
    """What the program prints for these questions."""
    words = json.dumps({"seconds": seconds, "programs": programs or {}, "questions": questions})
    done = subprocess.run(
        [sys.executable, "-I", "-c", host.source("look")],
        input=words,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return json.loads(done.stdout)["answers"]


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ({"argv": ["sh", "-c", "echo out; echo err >&2; exit 3"]}, [3, "out\n", "err\n", None]),
        ({"argv": ["printf", "\\377"]}, [0, "\ufffd", "", None]),
        ({"argv": ["sh", "-c", "echo no; exit 2"], "otherwise": ["echo", "old"]}, [0, "old\n", "", None]),
        ({"argv": ["sh", "-c", "echo no; exit 3"], "otherwise": ["echo", "old"]}, [3, "no\n", "", None]),
        ({"argv": ["sh", "-c", "echo no; exit 2"], "otherwise": []}, [2, "no\n", "", None]),
        ({"program": "says", "args": ["a", "b"]}, [0, "", "", ["b", "a"]]),
        ({"program": "exits", "args": []}, [1, "", "cannot read /x", None]),
    ],
)  # fmt: skip
def test_a_question_and_its_answer(question, answer):
    programs = {
        "says": "import os\ndef answer(*words): return words[::-1]\nif __name__ == '__main__': raise OSError",
        "exits": "import sys\ndef answer(): sys.exit('cannot read /x')",
    }
    assert asked({"one": question}, programs) == {"one": answer}


def test_a_tool_is_not_there_also_where_a_folder_of_path_is_closed(tmp_path, monkeypatch):
    (tmp_path / "odd-tool").write_text("")  # which root may not run either, as others may not look into a folder
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert Answer(*asked({"one": {"argv": ["odd-tool"]}})["one"]).missing


def test_who_breaks_or_is_not_there_does_not_keep_the_others():
    told = asked(
        {
            "missing": {"argv": ["no-such-tool"]},
            "breaks": {"program": "breaks", "args": []},
            "no json": {"program": "odd", "args": []},
            "fine": {"argv": ["echo", "fine"]},
        },
        {"breaks": "def answer(): return 1 / 0", "odd": "def answer(): return object()"},
    )
    assert told["fine"] == [0, "fine\n", "", None]
    assert Answer(*told["missing"]).missing
    for name, word in (("breaks", "ZeroDivisionError"), ("no json", "not JSON serializable")):
        with pytest.raises(RemoteFailed) as failed:
            Answer(*told[name]).read()
        assert word in failed.value.evidence


def test_who_hangs_is_left_behind():
    """Also a program of ours, which no signal ends: a read of a dead disk never returns."""
    began = time.monotonic()
    told = asked(
        {
            "tool": {"argv": ["sleep", "60"]},
            "program": {"program": "hangs", "args": []},
            "fine": {"argv": ["echo", "fine"]},
        },
        {"hangs": "import threading\ndef answer(): threading.Event().wait()"},
        SLOW,
    )
    assert time.monotonic() - began < 30
    assert (told["fine"][0], told["tool"][0], told["program"][0]) == (0, None, None)
    assert "0.6 s" in told["program"][2]


def test_programs_are_in_nobody_s_way():
    """Two that use the same names, each in a namespace of its own."""
    programs = {name: f"value = {name!r}\ndef answer(): return value" for name in ("a", "b")}
    told = asked({name: {"program": name, "args": []} for name in programs}, programs)
    assert [told[name][3] for name in programs] == ["a", "b"]


def test_a_look_at_this_machine(tmp_path: Path):
    where = Host.model_validate({"name": "here", "transport": "local"})
    remote = Remote(where, LocalTransport("here"), lambda _: None, threading.Event())
    found = looking.look(remote, About(str(tmp_path), (str(tmp_path / "there"),)))
    assert found[system.FACT].kernel == Path("/proc/sys/kernel/osrelease").read_text().strip()
    assert [disk.path for disk in found[disks.FACT]] == [str(tmp_path), str(tmp_path / "there")]
    assert any(process.pid == found[processes.FACT].asked_by for process in found[processes.FACT].all)
    assert found.offset is not None
    assert found.round_trip is not None
    assert abs(found.offset) <= found.round_trip


def test_a_process_that_cannot_end_is_left_behind_too():
    """As one whose thread waits for a dead disk: the kernel ends it when the disk answers."""
    stays = "import os, threading\ndef answer():\n os._exit = lambda _: threading.Event().wait()\n return os.getpid()"
    told = asked({"stays": {"program": "stays", "args": []}}, {"stays": stays})["stays"]
    os.kill(told[3], signal.SIGKILL)  # it lived: whose answer is in hand is not waited for
    assert told[:2] == [0, ""]


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        (Answer(0, document={}), "is not understood"),
        (Answer(1, err="Traceback:\n it broke"), "failed"),
        (Answer(1, err="cannot read /w: Permission denied"), "cannot read /w"),
        (Answer(None, err="it had not ended after 20 s"), "had not ended"),
    ],
)  # fmt: skip
def test_an_answer_that_is_none_or_odd_is_an_error_with_what_was_said(answer, word):
    fact = Fact("odd", lambda _: {"one": Program("odd")}, lambda answers: answers["one"].read()["there"])
    with pytest.raises(RemoteFailed, match=f"gpu1: .*odd.*{word}") as failed:
        Facts("gpu1", {"odd": {"one": answer}})[fact]
    assert answer.err in f"{failed.value.what}\n{failed.value.evidence}"


def test_the_facts_have_the_names_of_their_modules_and_questions_of_two_kinds():
    for fact in looking.every():
        for question in fact.questions(About()).values():
            assert isinstance(question, Command | Program)
            if isinstance(question, Program):
                assert "\ndef answer(" in host.source(question.name) or "\nanswer = " in host.source(question.name)


@pytest.mark.parametrize("fact", [system.FACT, processes.FACT], ids=lambda fact: fact.name)
def test_a_program_that_broke_says_why_where_a_fact_is_all_its_answer(fact):
    (which,) = fact.questions(About())
    with pytest.raises(RemoteFailed, match=f"gpu1: {fact.name}: .*cannot read /x"):
        Facts("gpu1", {fact.name: {which: Answer(1, err="cannot read /x")}})[fact]
