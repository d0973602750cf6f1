"""Whose the port is, with real processes: children, titles that wipe an environment, wrappers, strangers."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from deploy import environments, host, plan
from deploy.deployment.state import Machine, Place
from deploy.errors import DeployError
from deploy.inventory import Host
from deploy.plan import Node
from deploy.profile import Profile
from deploy.remote import Remote
from deploy.server import identity
from deploy.steps.launch import START
from deploy.text.words import environment
from deploy.transport.local import LocalTransport
from tests.installed import needs
from tests.project import free_port, until

SERVER = str(Path(__file__).parents[1] / "titled_server.py")
ENVIRONMENT = {
    "NCCL_DEBUG": "INFO",
    "NCCL_IB_HCA": "mlx5_0",
    "LD_LIBRARY_PATH": "/opt/a:/opt/b",
    "CUDA_VISIBLE_DEVICES": "4,5",
    "SOME_TOKEN": "t0p",
}


@dataclass
class Launched:
    """A server started by `launch.sh` in a run's folder, as the step `launch` starts it."""

    root: Path
    port: int

    @property
    def folder(self) -> Path:
        return self.root / "it" / "runs" / "r1"

    def start(self, *argv: str, **env: str) -> None:
        """With `ENVIRONMENT` and `env`; returns once its child has said that it is there."""
        fields = {"engine": "command", "hosts": "here", "model": "/m", "args": {"argv": list(argv)}}
        profile = Profile.model_validate({"name": "it", "port": self.port, "env": {**ENVIRONMENT, **env}, **fields})
        self.node: Node = plan.make({Host.model_validate({"name": "here"}): profile}, None, None).nodes[0]
        self.folder.mkdir(parents=True)
        files = {"env": environment(self.node.env), "launch.sh": self.node.launch_script}
        for name, text in {**files, "logcap.py": host.source("logcap")}.items():
            (self.folder / name).write_text(text)
        subprocess.run(["sh", "-c", START, "sh", self.folder], check=True, capture_output=True)
        until((self.folder / "server.log").read_text, what="its first word")

    def look(self, rank: int = 0) -> identity.Serving:
        """What `health` sees of it."""
        where = Host.model_validate({"name": "here", "transport": "local"})
        remote = Remote(where, LocalTransport(), lambda _: None, threading.Event())
        machine = Machine("id", "here", "me", "/home/me", str(self.root), str(self.root), {})
        remote.place = Place(machine, "it", "r1")
        return identity.look(replace(self.node, rank=rank), remote)

    def words(self) -> list[str]:
        """What is told of it: findings, or the error."""
        try:
            return [finding.what for finding in self.look().findings]
        except DeployError as error:
            return [f"{error.exit_code}: {error}"]

    def end(self) -> None:
        """Kill its session; what left that dies with its parent."""
        with suppress(ProcessLookupError):
            os.killpg(int((self.folder / "pid").read_text().split()[0]), signal.SIGKILL)


@pytest.fixture
def launched(tmp_path: Path) -> Iterator[Launched]:
    made = Launched(tmp_path, free_port())
    yield made
    made.end()


@pytest.fixture
def titled() -> str:
    """An interpreter that has the real setproctitle: SGLang's own."""
    needs("sglang-cpu")
    found = environments.locate("sglang-cpu")
    assert found
    return found.python


@contextmanager
def stranger(python: str, port: int, *words: str, run: str = "") -> Iterator[None]:
    """Somebody else's process that listens on the port; of another run of ours where `run` says so."""
    env = {**os.environ, **({"DEPLOY_SERVER": run} if run else {})}
    with subprocess.Popen([python, SERVER, str(port), "alone", *words], env=env, stdout=subprocess.DEVNULL) as other:
        try:
            yield
        finally:
            other.kill()


TITLES: dict[str, tuple[list[str], dict[str, str], str]] = {
    "SPT_NOENV keeps the environment": (["title"], {"SPT_NOENV": "1"}, ""),
    "also in a session of its own": (["title", "session"], {"SPT_NOENV": "1"}, ""),
    "without it, the session proves it": (["title"], {}, "has a wiped environment"),
    "in a session of its own, its parents do": (["title", "session"], {}, "has a wiped environment"),
}


@pytest.mark.engine
@pytest.mark.parametrize("case", TITLES)
def test_a_child_with_a_title_is_known_for_ours(launched: Launched, titled: str, case: str) -> None:
    words, env, said = TITLES[case]
    launched.start(titled, SERVER, "{port}", *words, **env)
    seen = launched.look()
    assert [process.cmdline[0] for process in seen.processes] == ["sglang::tokenizer_worker"]
    assert [said in finding.what for finding in seen.findings] == [True] * bool(said), seen.findings


@pytest.mark.engine
def test_a_wiped_environment_of_nobody_knows_whom_is_not_called_foreign(launched: Launched, titled: str) -> None:
    launched.start(sys.executable, SERVER, "{port}", "idle")
    with stranger(titled, launched.port, "title"):
        (told,) = until(lambda: "10: " in (words := launched.words())[0] and words, what="it listens")
    assert told.startswith("10: here: whose the process is that answers"), told
    assert "SPT_NOENV" in told


def test_a_child_that_listens_is_the_one_that_serves(launched: Launched) -> None:
    launched.start(sys.executable, SERVER, "{port}")
    (process,) = launched.look().processes
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2].split()
    assert (process.start_ticks, launched.words()) == (int(fields[19]), [])
    assert process.ppid != int((launched.folder / "pid").read_text().split()[0]), "it is a grandchild of the launcher"


def test_on_other_ranks_what_was_launched_counts_and_nobody_has_to_listen(launched: Launched) -> None:
    launched.start(sys.executable, SERVER, "{port}", "idle")
    (process,) = launched.look(rank=1).processes
    assert process.ppid == int((launched.folder / "pid").read_text().split()[0])
    (told,) = launched.look().findings
    assert "cannot be seen" in told.what


WRAPPERS: dict[str, tuple[str, list[str]]] = {
    "it drops a variable": ("unset NCCL_DEBUG", ["NCCL_DEBUG: wished 'INFO', it is missing"]),
    "it exchanges one": ("export NCCL_IB_HCA=mlx5_9", ["NCCL_IB_HCA: wished 'mlx5_0', it is 'mlx5_9'"]),
    "it exchanges a secret": ("export SOME_TOKEN=other", ["SOME_TOKEN: wished a secret, it is another one"]),
    "it drops all": (
        'exec env -i DEPLOY_SERVER="$DEPLOY_SERVER" "$@"',
        ["NCCL_DEBUG: wished 'INFO', it is missing", "LD_LIBRARY_PATH: wished '/opt/a:/opt/b', it is missing"],
    ),
    "it adds to a path": ("export LD_LIBRARY_PATH=/opt/c:$LD_LIBRARY_PATH", []),
    "it takes from a path": ("export LD_LIBRARY_PATH=/opt/a", ["LD_LIBRARY_PATH: wished '/opt/a:/opt/b', it is"]),
    "it sets others": ("export NCCL_ALGO=Ring", []),
    "it gives it one of the devices": ("export CUDA_VISIBLE_DEVICES=5", []),
    "it gives it another device": ("export CUDA_VISIBLE_DEVICES=6", ["CUDA_VISIBLE_DEVICES: wished '4,5', it is '6'"]),
    "it starts a worker that has another one": (
        "NCCL_DEBUG=WARN CUDA_VISIBLE_DEVICES=4 sleep 30 &",
        ["processes of the server live in another environment than it: NCCL_DEBUG"],
    ),
}


@pytest.mark.parametrize("case", WRAPPERS)
def test_a_wrapper_that_changes_the_environment_is_told(launched: Launched, tmp_path: Path, case: str) -> None:
    script, lines = WRAPPERS[case]
    wrapper = tmp_path / "wrapper"
    wrapper.write_text(f'#!/bin/sh\n{script}\nexec "$@"\n')
    launched.start("sh", str(wrapper), sys.executable, SERVER, "{port}", "alone")
    told = "\n".join(launched.words())
    assert [line in told for line in lines] == [True] * len(lines), told
    assert bool(told) == bool(lines), told
    assert "t0p" not in told


STRANGERS: dict[str, tuple[str, str, str]] = {
    # case: (what our server does, the run of the other one, words)
    "it has the port instead of ours": ("idle", "", "is answered by somebody else's process"),
    "it listens beside ours": ("reuse", "", "is answered by somebody else's process"),
    "it is an older run": ("idle", "{runs}/r0", "is answered by run r0, not by r1"),
    "it is another deployment": ("idle", "/w/other/runs/r7", "is answered by the server in /w/other/runs/r7"),
}


@pytest.mark.parametrize("case", STRANGERS)
def test_who_else_answers_is_named(launched: Launched, case: str) -> None:
    word, run, said = STRANGERS[case]
    launched.start(sys.executable, SERVER, "{port}", word)
    with stranger(sys.executable, launched.port, "reuse", run=run.format(runs=launched.folder.parent)):
        (told,) = until(lambda: "7: " in (words := launched.words() or [""])[0] and words, what="it listens")
    assert said in told


def test_a_listener_on_another_address_answers_nobody_who_asks_here(launched: Launched) -> None:
    launched.start(sys.executable, SERVER, "{port}")
    with closing(socket.create_server(("127.0.0.2", launched.port))):
        assert launched.words() == []


def test_a_run_that_is_gone_is_told(launched: Launched) -> None:
    launched.start(sys.executable, SERVER, "{port}")
    launched.end()
    told: Any = until(lambda: (words := launched.words()) and "is gone" in words[0] and words, what="the end")
    assert told[0].startswith("7: ")


def test_a_server_without_its_launcher_is_proven_and_told(launched: Launched) -> None:
    launched.start(sys.executable, SERVER, "{port}")
    os.kill(int((launched.folder / "pid").read_text().split()[0]), signal.SIGKILL)
    until(lambda: "lost its launcher" in "".join(launched.words()), what="the loss")
