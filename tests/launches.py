"""Real engines on the CPU, started as they should not be, and all that they write: the source of most of our logs.

A launch differs from the healthy pair's command by a few flags, by what is in its way, or by what is done to it while
it writes: each word of its output is read as it comes, so a child can be killed between two lines.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from deploy.environments import Installed
from tests.commands import COMMANDS, written
from tests.masks import machine, masked
from tests.project import EXAMPLES, ROOT, free_port

READY = {"sglang": "ready to roll", "vllm": "Application startup complete"}
PATIENCE = 120.0  # seconds; it imports for 6 to 60 without a word


@dataclass
class Running:
    """A launch that has been started."""

    process: subprocess.Popen[bytes]
    port: int

    def child(self, title: str) -> int:
        """The pid of the process of its session that has such a title."""
        for pid in self.pids():
            with contextlib.suppress(OSError):
                if title in Path(f"/proc/{pid}/cmdline").read_text():
                    return pid
        raise LookupError(f"no process {title!r} in session {self.process.pid}")

    def pids(self) -> list[int]:
        """All that lives in its session."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                state, _, _, session, *_ = (folder / "stat").read_text().rpartition(") ")[2].split()
                if int(session) == self.process.pid and state not in "ZX":
                    found.append(int(folder.name))
        return found

    def end(self) -> None:
        """Leave nothing of it."""
        while pids := self.pids():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.2)
        self.process.wait()


Act = Callable[[Running], Any]


@dataclass(frozen=True)
class Launch:
    """`args` and `env` over the healthy command, None takes out; `draft` and `model` make a folder in the one given."""

    engine: str = "sglang"
    args: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    draft: Callable[[Path], Path] | None = None
    model: Callable[[Path], Path] | None = None
    taken: Callable[[int], int] | None = None  # which port somebody else has, by the server's own
    memory: int = 0  # bytes that it may have, by a control group
    acts: tuple[tuple[str, Act], ...] = ()  # what is done at the first line after the last act that shows this
    until: str = ""  # the line at which it has shown enough, if it does not end; else its ready line
    quiet: float = PATIENCE  # seconds without a word that are the end too, once all is done to it
    told: str = ""  # the row of the table of failures that explains it; a healthy one needs none
    noted: str = ""  # the row of what it says that is worth knowing
    rank: str = ""  # a pattern: the first rank to fail, where there are several
    other: tuple[int, str, str] | None = None  # status, row and rank of the end that a race within it may bring as well


@dataclass(frozen=True)
class Ended:
    """All that it wrote, masked; its status as launch.sh writes it (128 + n after signal n), None where it lived on."""

    log: str
    status: int | None
    seconds: float


# ---- what is done to it


def signalled(title: str, number: int) -> Act:
    """Send a signal to one of its processes."""
    return lambda running: os.kill(running.child(title), number)


def ended(running: Running) -> None:
    """SIGTERM to the launched process."""
    running.process.terminate()


def asked(tokens: int = 200, times: int = 1, timeout: float = 120.0) -> Act:
    """Ask it something, without waiting for the answer."""

    def ask(running: Running) -> None:
        body = {"text": "Q: count from 3\nA:", "sampling_params": {"max_new_tokens": tokens, "temperature": 0}}
        for _ in range(times):
            threading.Thread(target=_post, args=(running.port, "/generate", body, timeout), daemon=True).start()

    return ask


def health(running: Running) -> None:
    """One GET /health_generate, without waiting for the answer."""
    threading.Thread(target=_post, args=(running.port, "/health_generate", None, 60.0), daemon=True).start()


def _post(port: int, path: str, body: Mapping[str, Any] | None, timeout: float) -> None:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"})
    with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=timeout) as answer:
        answer.read()


# ---- the launch


def launch(case: Launch, name: str, installed: Installed, folder: Path) -> Ended:
    """Start it, do what is to be done, read until it has shown enough, and leave nothing of it."""
    port = free_port()
    draft = case.draft(folder / "draft") if case.draft else EXAMPLES / "draft"
    model = case.model(folder / "model") if case.model else EXAMPLES / "target"
    profile = yaml.safe_load((ROOT / f"profiles/local-{case.engine}.yaml").read_text())
    words, flags = COMMANDS[case.engine](model, draft)
    flags |= {"served-model-name": "tiny", "host": "127.0.0.1", "port": port, **profile["args"], **case.args}
    argv = [installed.python, "-m", *words, *written(flags, port)]
    # as the engines' modules say: else a crash takes 65 s more, and titles wipe the environment
    env = {**os.environ, **installed.env, "SPT_NOENV": "1", "SGLANG_CUDA_COREDUMP_BEFORE_CRASH": "0"}
    env |= {**{name: str(value) for name, value in profile["env"].items()}, **case.env}
    masks = {str(draft): f"/srv/drafts/{name}" if case.draft else "/srv/drafts/tiny", str(model): "/srv/models/tiny"}
    masks |= machine(installed)
    start = time.monotonic()
    with (
        _holding(case.taken(port) if case.taken else 0),
        _group(case.memory) as join,
        _started([*join, *argv], env) as process,
    ):
        running = Running(process, port)
        try:
            text = _read(case, running)
            status = process.poll()
        finally:
            running.end()
    told = status if status is None or status >= 0 else 128 - status
    return Ended(masked(text, masks), told, time.monotonic() - start)


def _started(argv: list[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        cwd="/",
        env=env,
    )


def _read(case: Launch, running: Running) -> str:
    """What it writes, until it ended, showed enough or fell silent; acts are done on the way."""
    out = running.process.stdout
    assert out is not None
    text, seen, acts = "", 0, list(case.acts)
    with selectors.DefaultSelector() as selector, _end_of(running.process) as end:
        selector.register(out, selectors.EVENT_READ)
        selector.register(end, selectors.EVENT_READ)
        while ready := selector.select(PATIENCE if acts else case.quiet):
            if all(key.fd == end for key, _ in ready):  # children may hold the pipe open for ever
                running.process.wait()
                break
            more = os.read(out.fileno(), 1 << 16)
            if not more:
                running.process.wait(PATIENCE)
                break
            text += more.decode(errors="replace")
            while acts and (found := re.compile(acts[0][0]).search(text, seen)):
                seen = found.end()
                acts.pop(0)[1](running)
            if not acts and re.compile(case.until or READY[case.engine]).search(text, seen):
                break
    assert not acts, f"it never wrote {acts[0][0]!r}: {text[-2000:]}"
    return text


@contextlib.contextmanager
def _end_of(process: subprocess.Popen[bytes]) -> Iterator[int]:
    """A descriptor that can be read once the process has ended, whoever else holds its output."""
    descriptor = os.pidfd_open(process.pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _holding(port: int) -> Iterator[None]:
    """Somebody else listens there."""
    with socket.socket() as other:
        if port:
            other.bind(("127.0.0.1", port))
            other.listen()
        yield


@contextlib.contextmanager
def _group(memory: int) -> Iterator[list[str]]:
    """The words that start a program in a control group that may have so much memory; none for no limit."""
    if not memory:
        yield []
        return
    home = Path(f"/sys/fs/cgroup/memory/deploy-test-{os.getpid()}")  # the first version of control groups
    home.mkdir()
    try:
        (home / "memory.limit_in_bytes").write_text(str(memory))
        yield ["sh", "-c", f'echo $$ >{home}/cgroup.procs; exec "$@"', "sh"]
    finally:
        for _ in range(100):  # the dead are still leaving it
            with contextlib.suppress(OSError):
                home.rmdir()
                break
            time.sleep(0.1)
