"""Fake servers that were started by themselves, without the tool."""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path

from tests.project import PATIENCE, until

TESTS = Path(__file__).parent
READY = "The server is fired up and ready to roll!"


class Server:
    """A fake server that was started, its log and its port."""

    def __init__(self, folder, flags, fake, port=0, env=None):
        self.port = port or free_port()
        self.log_file = folder / "server.log"
        words = [
            sys.executable,
            str(TESTS / "fake_server.py"),
            "-m",
            "sglang.launch_server",
            "--model-path",
            "/models/kimi",
        ]
        words += ["--port", str(self.port), "--some-flag", "1", *flags]
        environment = {**os.environ, "FAKE": json.dumps({"lifetime": 60, **fake}), **(env or {})}
        with self.log_file.open("wb") as log:
            self.process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
            )

    def log(self):
        return self.log_file.read_bytes().decode()

    def says(self, pattern):
        until(lambda: re.search(pattern, self.log()) or self.process.poll() is not None)
        assert re.search(pattern, self.log()), self.log()
        return self

    def ask(self, path, body=None, key="", timeout=PATIENCE):
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        method, content = ("GET", None) if body is None else ("POST", json.dumps(body))
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)) as connection:
            connection.request(method, path, content, headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        return answer.status, json.loads(text) if text.startswith("{") else text

    def generate(self, tokens=64, prompt="Write.", **more):
        body = {"text": prompt, "sampling_params": {"max_new_tokens": tokens, "temperature": 0}, **more}
        return self.ask("/generate", body)[1]

    def chat(self, prompt="Hello, what is 2+2?", **more):
        body = {"model": "kimi", "messages": [{"role": "user", "content": prompt}], "max_tokens": 100, **more}
        return self.ask("/v1/chat/completions", body)[1]

    def refuses(self):
        with socket.socket() as there:
            return there.connect_ex(("127.0.0.1", self.port)) != 0


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as there:
        return there.getsockname()[1]


def cmdlines():
    """{pid: command line} of all processes."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found[int(path.parent.name)] = path.read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
    return found


def children_of(server):
    """{pid: stat fields} of the schedulers that this very server started, found by a variable of their environment."""
    found = {}
    for pid, line in cmdlines().items():
        try:
            environ = Path(f"/proc/{pid}/environ").read_bytes()
            stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if (
            f"DEPLOY_SERVER={server.port}\0".encode() in environ
            and line.startswith("sglang::scheduler")
            and stat[0] != "Z"
        ):
            found[pid] = stat
    return found


@contextmanager
def starting(folder):
    """Starts servers that end, with all they started, with the block."""
    started: list[Server] = []

    def run(*flags, env=None, port=0, **fake):
        port = port or free_port()
        environment = {"DEPLOY_SERVER": str(port), "SPT_NOENV": "1", **(env or {})}
        own = folder / str(len(started))
        own.mkdir()
        started.append(Server(own, flags, fake, port, environment))
        return started[-1]

    try:
        yield run
    finally:
        for server in started:
            server.process.kill()
            server.process.wait()
            for pid in children_of(server):
                os.kill(pid, signal.SIGKILL)
