"""What a profile says arrives in the server as it was written, through sshd: environment, arguments, paths, prompts."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from deploy import plan
from deploy.engines import _chat
from deploy.inventory import Host
from deploy.profile import Profile
from deploy.remote import Remote
from deploy.text.words import environment
from deploy.transport import connect
from tests.sshd.test_values_arrive_unchanged import TEXT

SERVER = """import json, os, sys
json.dump({"argv": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd()}, open("seen.json", "w"))"""
NAMES = st.from_regex(r"WILD_[A-Z0-9_]{0,8}", fullmatch=True)
FOLDERS = TEXT.filter(lambda name: name.strip("/.") and "/" not in name and len(name.encode()) < 100)
# each is its own launch over a real connection
few = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def remote(sshd) -> Iterator[Remote]:
    host = Host.model_validate({"name": "far", "address": sshd.address, "user": sshd.user, "port": sshd.port})
    transport = connect(sshd)
    made = Remote(host, transport, lambda _: None, threading.Event())
    yield made
    transport.close()


@few
@given(args=st.lists(TEXT, max_size=4), env=st.dictionaries(NAMES, TEXT, max_size=4), folder=FOLDERS, model=TEXT)
@example(args=["$run", "-n", "", "a'b"], env={"WILD_": "$HOME; `id`\n'"}, folder=" a'b\n$run \"", model="/m/$x;y")
def test_a_launch(remote, tmp_path_factory, args, env, folder, model):
    path = tmp_path_factory.mktemp("runs") / folder
    path.mkdir()
    argv = ["python3", "-I", "-c", SERVER, "{model}", *(word.replace("{", "(") for word in args)]
    profile = Profile.model_validate(
        {
            "name": "wild",
            "engine": "command",
            "hosts": "far",
            "model": model.replace("{", "(") or "m",
            "env": env,
            "args": {"argv": argv},
        }
    )
    node = plan.make({remote.host: profile}, None, None).nodes[0]
    files = {"launch.sh": node.launch_script, "env": environment(node.env)}
    for name, content in files.items():
        remote.transport.put(str(path / name), content.encode())
    remote.run("sh", str(path / "launch.sh"))
    seen = json.loads((path / "seen.json").read_text())
    assert seen["argv"] == [profile.model.path, *argv[5:]]
    assert {name: seen["env"].get(name) for name in env} == env
    assert seen["cwd"] == str(path.resolve())
    assert (path / "exit").read_text() == "0\n"


class Echo(BaseHTTPRequestHandler):
    """Answers with what it was asked."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Not to stderr."""


@pytest.fixture(scope="module")
def echo() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@few
@given(prompt=TEXT, model=TEXT)
def test_a_prompt(remote, echo, prompt, model):
    question = _chat.question(model, prompt, 5)
    reply = remote.http("POST", echo, question.path, dict(question.body))
    assert json.loads(reply.body) == question.body
