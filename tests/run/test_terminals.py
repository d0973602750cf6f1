"""A server's words never steer the terminal of who reads them: not its log, its answers, its refusals."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import threading
from typing import Any

import pytest

from tests.project import Project
from tests.run.test_odd_answers import ODD
from tests.run.test_smoke import saying

# Title, screen, clipboard, a key's report, an 8-bit introducer, and a backspace over what stands there.
EVIL = "\x1b]0;pwned\x07\x1b[2J\x1b]52;c;cHduZWQ=\x1b\\\x1b[6n\x9b31m\x08\x08 4 words"
OURS = re.compile(rb"\x1b\[(?:[0-9;]*[mAJK]|\?25[hl]|[0-9]*[GABCD])|[\r\n\t]")  # colours, and rich's own moves
STEERS = re.compile(rb"[\x00-\x1f\x7f]|\xc2[\x80-\x9f]")

CASES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "its log": ({"log": EVIL}, ["-vv"]),
    "its answer": (saying({"content": EVIL}), ["-v"]),
    "its list of models": ({"/v1/models": {"body": json.dumps({"data": [{"id": EVIL}]})}}, []),
    "its refusal": ({"/v1/chat/completions": {"raw": f"HTTP/1.1 500 {EVIL}\r\n\r\n{EVIL}"}}, []),
}


@pytest.fixture
def odd(project: Project, request: pytest.FixtureRequest) -> Project:
    wrong = CASES[request.param][0]
    fake = {"lifetime": 60, "phase_seconds": {"http": 1}}  # a second to see the log's last line in
    project.fake(
        engine={"name": "sglang", "python": str(ODD)},
        env={"ODD": json.dumps(wrong), "FAKE": json.dumps(fake)},
        draft=None, speculative=None, bench={"prompts": []},
    )  # fmt: skip
    return project


def on_a_terminal(project: Project, *words: str) -> bytes:
    """All that a command writes where stdout and stderr are a terminal."""
    primary, secondary = pty.openpty()
    told = bytearray()

    def read() -> None:
        while True:
            try:
                told.extend(os.read(primary, 65536))
            except OSError:  # EIO: the last one who had it open is gone
                return

    environ = {**project.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
    reader = threading.Thread(target=read)
    reader.start()
    with subprocess.Popen(
        project.argv(*words), cwd=project.folder, env=environ, stdout=secondary, stderr=secondary,
        stdin=subprocess.DEVNULL, start_new_session=True,
    ) as process:  # fmt: skip
        os.close(secondary)
        process.wait(timeout=120)
    reader.join()
    os.close(primary)
    return bytes(told)


@pytest.mark.parametrize("odd", CASES, indirect=True, ids=str)
def test_what_a_server_says_steers_no_terminal(odd: Project, request: pytest.FixtureRequest) -> None:
    case = request.node.callspec.params["odd"]
    told = on_a_terminal(odd, "up", "profile=fake", *CASES[case][1])
    assert b"words" in told, "the case is seen at all"
    assert STEERS.findall(OURS.sub(b"", told)) == [], told
    log = on_a_terminal(odd, "logs")
    assert STEERS.findall(log.replace(b"\r\n", b"\n").replace(b"\n", b"")) == [], log
