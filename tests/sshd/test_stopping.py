"""Who is ended by a stop, and who never: live processes of every shape on a real sshd, each judged by pid and start."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.crowded_server import NOBODY, QUIET, SHAPES
from tests.fleet import Keys, TestHost
from tests.project import Project, ended, free_port, until

pytestmark = [
    pytest.mark.sshd,
    pytest.mark.skipif(os.geteuid() != 0, reason="processes of another user and of another namespace need root"),
]

CROWDED = Path(__file__).parent.parent / "crowded_server.py"
AS_NOBODY = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"]
WAIT = "import sys, time; sys.stdin.read()"
LISTEN = """
import socket, sys
with socket.socket() as listener:
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind(("127.0.0.1", int(sys.argv[1])))
    listener.listen()
    sys.stdin.read()
"""


MAP = """
import mmap, sys
with open(sys.argv[1], "a+b") as file:
    file.truncate(1 << 20)
    kept = mmap.mmap(file.fileno(), 1 << 20)
sys.stdin.read()
"""


@dataclass(frozen=True)
class Scene:
    """A deployment that serves, and what a stranger may have to do with it."""

    folder: Path  # the run's
    port: int  # shared by SO_REUSEPORT
    memory: Path  # shared by mapping
    host: TestHost
    config: Path

    def environ(self, **more: str) -> dict[str, str]:
        return {**os.environ, **more}


@dataclass(frozen=True)
class Stranger:
    """A process that the deployment did not launch: its words, and what else it is started with."""

    argv: Callable[[Scene], list[str]]
    env: Callable[[Scene], Mapping[str, str]] = Scene.environ
    options: Callable[[Scene], dict[str, Any]] = lambda _: {}
    into: Callable[[Scene], Path] = lambda _: Path(os.devnull)  # where its stdout goes


def launching(scene: Scene) -> str:
    """Words that nobody else on this machine has, and that a pattern would hit."""
    return f"python -m sglang.launch_server --port {scene.port}"


def python(code: str, *words: str) -> list[str]:
    return [sys.executable, "-I", "-c", code, *words]


def titled(title: str) -> Stranger:
    """It calls itself an engine, and its environment is wiped: by hand, or another tool's."""
    return Stranger(lambda _: [title, "120"], lambda _: {}, lambda _: {"executable": "/bin/sleep"})


STRANGERS: dict[str, Stranger] = {
    "an editor that is open on launch_server.py": Stranger(
        lambda scene: python(WAIT, "vim", "site-packages/sglang/launch_server.py"),
        options=lambda scene: {"cwd": scene.folder},
    ),
    "a grep for schedulers": Stranger(lambda _: ["grep", "-f", "-", "sglang::scheduler sglang.launch_server"]),
    "a tail of the run's log": Stranger(lambda scene: ["tail", "-f", str(scene.folder / "server.log")]),
    "our own ssh, with the engine's words": Stranger(
        lambda scene: [
            *("ssh", "-F", str(scene.config), "-i", scene.host.key, "-p", str(scene.host.port)),
            *(f"root@{scene.host.address}", f"cat; : {launching(scene)}"),
        ],
    ),
    "an engine's title": titled("sglang::scheduler_TP0"),
    "a server that was started by hand": Stranger(lambda _: python(WAIT, "-m", "sglang.launch_server", "--port", "1")),
    "another user's": Stranger(lambda _: [*AS_NOBODY, "/usr/bin/python3", "-c", WAIT, "sglang.launch_server"]),
    "in another pid namespace": Stranger(
        lambda _: ["unshare", "--pid", "--fork", "--kill-child", *python(WAIT, "sglang::scheduler")]
    ),
    "another deployment's": Stranger(
        lambda _: python(WAIT),
        lambda scene: scene.environ(DEPLOY_SERVER=f"{scene.folder.parents[2]}/other/runs/{scene.folder.name}"),
    ),
    "one whose folder begins as ours": Stranger(
        lambda _: python(WAIT),
        lambda scene: scene.environ(DEPLOY_SERVER=f"{scene.folder.parent}-old/{scene.folder.name}"),
    ),
    "one that writes to the run's log": Stranger(
        lambda _: python(WAIT), into=lambda scene: scene.folder / "server.log"
    ),
    "one that shares the port": Stranger(lambda scene: python(LISTEN, str(scene.port))),
    "one that shares memory": Stranger(lambda scene: python(MAP, str(scene.memory))),
    "one with memory of its own": Stranger(lambda scene: python(MAP, f"{scene.memory}0")),
}  # fmt: skip


def ticks(pid: int) -> str:
    return stat(pid)[19]


def stat(pid: int) -> list[str]:
    """Of /proc/PID/stat, from the state on; none where it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def lives(pid: int, start: str) -> bool:
    """That very process, and no zombie (but one whose other threads live)."""
    found = stat(pid)
    return bool(found) and found[19] == start and (found[0] not in "ZX" or int(found[17]) > 1)


def descendants(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(one for child in children for one in descendants(int(child)))]


def with_its_server(launcher: int) -> list[int]:
    """The launcher, and its child in its session; another one keeps the log short."""
    return [launcher, *(pid for pid in descendants(launcher) if stat(pid)[1:4:2] == [str(launcher)] * 2)]


@contextmanager
def strangers(scene: Scene) -> Iterator[dict[str, list[tuple[int, str]]]]:
    """All of them, by name: (pid, start ticks) of each process and of what it started."""
    with ExitStack() as stack:
        started = {}
        for name, one in STRANGERS.items():
            with one.into(scene).open("ab") as out:
                process = subprocess.Popen(
                    one.argv(scene), env=one.env(scene), stdin=subprocess.PIPE, stdout=out, start_new_session=True,
                    **one.options(scene),
                )  # fmt: skip
            stack.callback(process.communicate)
            stack.callback(process.kill)
            started[name] = process
        until(lambda: sum(launching(scene) in words for words in titles()) == 2, what="ssh")
        yield {name: [(pid, ticks(pid)) for pid in descendants(process.pid)] for name, process in started.items()}


def titles() -> Iterator[str]:
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue


@pytest.fixture
def project(sshd: TestHost, tmp_path: Path) -> Iterator[Project]:
    host = {"address": sshd.address, "port": sshd.port, "user": sshd.user, "key": sshd.key}
    made = Project(tmp_path / "project", {"gpu1": host})
    yield made
    ended(made.folder)


Ours = Mapping[str, tuple[int, str]]  # pid and start ticks by name


def kill_the_launcher(ours: Ours) -> None:
    """And the server, as the kernel does that is out of memory."""
    for name in ("the server", "the launcher"):
        os.kill(ours[name][0], signal.SIGKILL)


def kill_them_all(ours: Ours) -> None:
    """As `kill -9` by hand does; what they shared lies there."""
    for one in ours.values():
        if lives(*one):
            os.kill(one[0], signal.SIGKILL)
    until(lambda: not any(lives(*one) for one in ours.values()), what="their end")


def nothing(_: Ours) -> None:
    """It serves."""


@pytest.fixture
def memory() -> Iterator[Path]:
    """A file of /dev/shm whose name nobody else has, and whatever is called after it."""
    made = Path("/dev/shm", f"psm_{secrets.token_hex(6)}")
    yield made
    for path in made.parent.glob(f"*{made.name}*"):
        path.unlink()


STATES = {"stopped": "T", "a zombie": "Z", "without its first thread": "Z"}


BEFORE = [
    (nothing, "processes ended by KILL"),  # one is deaf to TERM
    (kill_the_launcher, "processes ended by KILL"),
    (kill_them_all, "nothing was running; "),
]


@pytest.mark.parametrize(("before", "said"), BEFORE)
def test_a_stop_ends_what_it_launched_and_nobody_else(
    project: Project, sshd: TestHost, keys: Keys, before: Callable[[Ours], None], said: str, memory: Path
) -> None:
    crowd, shared, address = project.folder / "crowd", free_port(), project.folder / "an ipc socket"
    own = [memory.with_name(f"{name}{memory.name}") for name in ("nccl-", "sem.mp-", "cuda.shm.")]
    weights = memory.with_name(f"weights of {memory.name}")
    pieces = [memory, weights, *own, address]
    quiet = {"QUIET": "1"} if before is nothing else {}
    project.fake(
        engine={"name": "sglang", "python": str(CROWDED)},
        env={"CROWD": str(crowd), "SHARED_PORT": str(shared), "MEMORY": ":".join(map(str, pieces)), **quiet},
        draft=None, speculative=None, bench={"prompts": []},
        ready={"deadline": 60, "stall": 30, "patience": 5},
    )  # fmt: skip
    done = project.run("up", "profile=fake")
    assert done.code == 0, done.err
    row = project.status()
    lines = [line.split("\t") for line in crowd.read_text().splitlines()]
    ours = {name: (int(pid), start) for name, pid, start in lines}
    launched = dict(zip(("the launcher", "the server"), with_its_server(int(row["pid"])), strict=True))
    ours |= {name: (pid, ticks(pid)) for name, pid in launched.items()}
    assert [*ours] == [*SHAPES, *(QUIET if quiet else {}), *launched]
    assert {name: stat(ours[name][0])[0] for name in STATES} == STATES
    assert [name for name, one in ours.items() if not lives(*one)] == ["a zombie"]
    assert all(path.exists() for path in [*own, address])
    with strangers(Scene(Path(row["folder"]), shared, memory, sshd, keys.config)) as others:
        before(ours)
        done = project.run("down", "profile=fake")
        assert done.code == 0, done.err
        assert [name for name, known in others.items() if not all(lives(*one) for one in known)] == []
        assert (memory.exists(), Path(f"{memory}0").exists()) == (True, True), "somebody else maps them"
    assert [name for name, one in ours.items() if lives(*one)] == []
    assert [path for path in [*own, address] if path.exists()] == [], done.err
    assert weights.exists(), "a server's files may be called anything, and so may a user's"
    assert said in done.err
    assert (Path(row["folder"]) / "stopped").exists() == (before is not kill_them_all), "it died, and was not ended"
