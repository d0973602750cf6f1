"""How a run is doing, as the program on a host finds it: real servers on real ports, in real run folders."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from deploy import host
from tests.project import PATIENCE, free_port, listens, until

PROGRAM = host.source("status")
BOOT = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
ENGINES = {"sglang": {"ready": "/health_generate", "metrics": "/metrics", "words": ["gen_throughput", "Decode batch"]}}

# A server with the answers {path: [status, body, seconds to wait]}; a wrong key is refused.
SERVER = """
import http.server, json, sys, time
port, answers, key = int(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3]
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        status, body, seconds = answers.get(self.path, [404, "", 0])
        if key and self.headers.get("authorization") != "Bearer " + key:
            status = 401
        time.sleep(seconds)
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())
    def log_message(self, *words): pass
http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""
GOOD = {"/health_generate": [200, "", 0], "/metrics": [200, "sglang:gen_throughput 7.0\nsglang:other 1.0\n", 0]}


def ticks(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[19]


@dataclass
class Case:
    """What the run's own server answers (None: it has none), its key and the run's; who else has the port."""

    answers: dict[str, Any] | None = field(default_factory=lambda: GOOD)
    key: str = ""
    secret: str = ""
    foreign: bool = False
    log: str = ""
    status: int | None = 200
    error: str = ""
    ours: bool | None = True
    metrics: str = "sglang:gen_throughput 7.0"
    told: str = ""


CASES = {
    "it answers": Case(),
    "it loads: nobody listens": Case(answers=None, status=None, error="refused", ours=None, metrics=""),
    "it warms up": Case(answers={**GOOD, "/health_generate": [503, "", 0]}, status=503),
    "it hangs": Case(answers={**GOOD, "/health_generate": [200, "", 60]}, status=None, error="timeout", metrics=""),
    "its metrics hang": Case(answers={**GOOD, "/metrics": [200, "", 60]}, metrics=""),
    "it has no metrics": Case(answers={"/health_generate": [200, "", 0]}, metrics=""),
    "it wants the key of the run": Case(key="k1", secret="k1"),
    "it wants another key": Case(key="k1", secret="k2", status=401, metrics=""),
    "another process has its port": Case(answers=None, foreign=True, ours=False),
    "its log tells": Case(log="noise\nDecode batch, gen throughput (token/s): 1\n" * 300, told="Decode batch"),
    "its log is long": Case(log="x" * 99 + "\n" + "Decode batch 1\n" + "y" * 400_000 + "\nDecode batch 2\n", told="2"),
}


@contextmanager
def server(port: int, answers: dict[str, Any], key: str = "", run: str = "") -> Iterator[int]:
    argv = [sys.executable, "-I", "-S", "-c", SERVER, str(port), json.dumps(answers), key]
    env = {**os.environ, **({"DEPLOY_SERVER": run} if run else {})}
    with subprocess.Popen(argv, env=env, start_new_session=True) as process:
        try:
            until(lambda: listens(port), what="the server")
            yield process.pid
        finally:
            process.kill()


@contextmanager
def launched(folder: Path, port: int, case: Case) -> Iterator[None]:
    """A run in its folder, with a launcher that lives, in the session of its server or in one of its own."""
    profile = {"engine": {"name": "sglang"}, "port": port, "secrets": {"KEY": "api-key", "OTHER": "env"}}
    (folder / "manifest.json").write_text(json.dumps({"node": {"profile": profile}}))
    (folder / "secrets.json").write_text(json.dumps({"KEY": case.secret, "OTHER": "x"}))
    (folder / "server.log").write_text(case.log)
    with ExitStack() as stack:
        if case.answers is not None:
            pid = stack.enter_context(server(port, case.answers, case.key, str(folder)))
        else:
            # it has a socket, so that its sockets can be seen, and listens on another port
            pid = stack.enter_context(server(free_port(), {}, run=str(folder)))
        if case.foreign:
            stack.enter_context(server(port, GOOD))
        (folder / "pid").write_text(f"{pid} {ticks(pid)} {BOOT}\n")
        yield


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a run that is the current one."""
    made = Path(asked(tmp_path)["state"]["root"]) / "kimi" / "runs" / "r1"
    made.mkdir(parents=True)
    (made.parents[1] / "current").symlink_to("runs/r1")
    return made


def asked(work: Path) -> dict[str, Any]:
    argv = [sys.executable, "-I", "-c", PROGRAM, str(work), "/nowhere/lock", json.dumps(ENGINES)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.stderr == ""
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def doing(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = asked(folder.parents[3])["doing"][str(folder)]
    return found


@pytest.mark.parametrize("name", CASES)
def test_a_living_run_is_asked_how_it_is(name, folder):
    case = CASES[name]
    port = free_port()
    with launched(folder, port, case):
        found = doing(folder)
    assert (found["ready"]["status"], found["ready"]["error"]) == (case.status, case.error)
    assert found["ours"] is case.ours
    assert found["metrics"] == case.metrics
    lines = found["log"].splitlines()
    assert len(lines) <= 200
    assert bool(lines) == bool(case.told)
    assert all("Decode batch" in line and case.told in line for line in lines)


def test_what_is_dead_is_not_asked_and_tells_when_it_ended(folder):
    (folder / "manifest.json").write_text("{}")
    (folder / "exit").write_text("1\n")
    os.utime(folder / "exit", (1000.0, 1000.0))
    assert doing(folder) == {"exit": 1000.0, "pids": []}


@pytest.mark.parametrize(
    "manifest", ["{", "{}", '{"node": 3}', '{"node": {"profile": {"engine": "sglang", "port": "x"}}}']
)
def test_a_living_run_whose_manifest_means_nothing_is_told(manifest, folder):
    with launched(folder, free_port(), Case()):
        (folder / "manifest.json").write_text(manifest)
        found = doing(folder)
    assert found["ready"] is None
    assert found["pids"]


def test_a_work_folder_that_cannot_be_read_is_an_error_and_no_empty_machine():
    if os.geteuid():
        pytest.skip("only root can be somebody else")
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        root = Path(asked(Path(name))["state"]["root"])
        root.mkdir(mode=0o700)
        nobody = [
            "setpriv",
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "/usr/bin/python3",
            "-I",
            "-c",
            PROGRAM,
        ]
        argv = [*nobody, name, "/nowhere/lock", "{}"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"cannot read {root}" in done.stderr
