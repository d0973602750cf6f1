"""A llama.cpp server that somebody started by hand becomes a profile, and that profile serves, measured."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.project import EXAMPLES, ROOT, Project, free_port, listens, until

pytestmark = pytest.mark.engine

PROGRAM = ROOT / "deploy/host/llama_server.py"


def test_a_server_started_by_hand_becomes_a_profile_that_serves(tmp_path: Path) -> None:
    project = Project(tmp_path / "project")
    port = free_port()
    flags = ["-m", "target.gguf", "-md", "draft.gguf", "--spec-type", "draft-eagle3", "--draft-max", "3"]
    argv = [sys.executable, str(PROGRAM), *flags, "-c", "2048", "-t", "1", "-np", "1", "--port", str(port)]
    script = tmp_path / "launch.sh"
    script.write_text(f"#!/bin/sh\ncd {shlex.quote(str(EXAMPLES))}\nexec {shlex.join(argv)}\n")
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(["sh", str(script)], stdout=log, stderr=log)
    try:
        until(lambda: listens(port), what="the server listens")
        for name, origin in (("running", f"localhost:{server.pid}"), ("script", str(script))):
            done = project.run("init", "--from", origin, f"profile={name}", "--json")
            assert (done.code, done.err) == (0, ""), done.err
            shown = project.run("profile", "show", name, "--json").json
            assert shown["draft"]["path"] == str(EXAMPLES / "draft.gguf")
            assert shown["args"] == {"ctx-size": 2048, "threads": 1, "parallel": 1}
            assert {one["what"] for one in done.json["differences"]} <= {
                "program", "--model", "--model-draft", "--host", "--alias", "--metrics", "PYTHONUNBUFFERED",
            }  # fmt: skip
    finally:
        server.kill()
        server.wait()
    words = ["smoke.ask=capital of France?", "smoke.expect=Paris", "-y", "--json"]
    up = project.run("up", "profile=running", f"port={free_port()}", *words)
    assert up.code == 0, up.err
    assert up.json["verdict"]["accept_length"] > 1.15
    assert project.run("down", "profile=running", "-y").code == 0
