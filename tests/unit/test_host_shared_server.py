"""What a host says of runs that share a server: the draft of all but the first was exchanged in it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy import host
from deploy.host import logcap
from deploy.steps.swap import SHARE, TELLING, UNSHARE
from tests.project import until

BOOT = Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def asked(program: str, *words: str | Path, stdin: str = "") -> Any:
    argv = [sys.executable, "-I", "-c", host.source(program), *map(str, words)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False, input=stdin)
    assert done.stderr == ""
    return json.loads(done.stdout)


class Kimi:
    """A deployment in a folder; what serves is a program that sleeps, launched as run r1."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.root = Path(asked("state", work, "/nowhere/lock")["root"])
        self.runs = self.root / "kimi" / "runs"
        self.make("r1")
        self.server = subprocess.Popen(["sleep", "600"], env={"DEPLOY_SERVER": str(self.runs / "r1")})
        until(lambda: Path(f"/proc/{self.server.pid}/comm").read_text() == "sleep\n", 10)  # no more our own environment
        ticks = Path(f"/proc/{self.server.pid}/stat").read_text().rpartition(") ")[2].split()[19]
        self.write("r1", pid=f"{self.server.pid} {ticks} {BOOT}\n")
        self.lead("current", "r1")

    def make(self, *names: str) -> None:
        for name in names:
            (self.runs / name).mkdir(parents=True)

    def write(self, name: str, **files: str) -> None:
        for file, content in files.items():
            (self.runs / name / file.replace("__", ".")).write_text(content)

    def lead(self, link: str, name: str) -> None:
        path = self.root / "kimi" / link
        path.unlink(missing_ok=True)
        path.symlink_to(f"runs/{name}")

    def share(self, name: str) -> None:
        """As the step `swap` does it."""
        self.make(name)
        subprocess.run(["sh", "-c", SHARE, "sh", str(self.runs / name), "../r1", *TELLING], check=True)

    def swap(self, name: str) -> None:
        self.share(name)
        self.write(name, weights__json="{}")
        self.lead("current", name)

    def now(self, which: str = "current") -> dict[str, Any]:
        found = asked("state", self.work, "/nowhere/lock")["deployments"]["kimi"][which]
        return {name: found[name] for name in ("id", "alive", "left", "server", "torn", "stopped")}


@pytest.fixture
def kimi(tmp_path: Path) -> Iterator[Kimi]:
    made = Kimi(tmp_path)
    yield made
    made.server.kill()
    made.server.wait()


def alive(kimi: Kimi, name: str, **more: object) -> dict[str, Any]:
    server = str(kimi.runs / "r1")
    return {"id": name, "alive": True, "left": 0, "server": server, "torn": False, "stopped": "", **more}


def test_a_run_whose_draft_was_exchanged_lives_by_the_process_of_the_first(kimi):
    assert kimi.now() == alive(kimi, "r1")
    kimi.swap("r2")
    assert kimi.now() == alive(kimi, "r2")
    kimi.swap("r3")
    assert kimi.now() == alive(kimi, "r3")
    assert asked("one_run", kimi.runs / "r2")["server"] == str(kimi.runs / "r1")


def test_what_outlives_the_launcher_is_left_of_each_of_them(kimi):
    kimi.swap("r2")
    kimi.write("r1", pid=f"4194305 1 {BOOT}\n", exit="1\n")
    assert kimi.now() == alive(kimi, "r2", alive=False, left=1)


def test_that_it_was_ended_or_torn_is_seen_of_each_of_them(kimi):
    kimi.swap("r2")
    kimi.write("r1", stopped="by deploy\n", swap__json="{}")
    assert kimi.now() == alive(kimi, "r2", torn=True, stopped="by deploy")


def test_their_folder_may_move_and_runs_may_lie_on_another_disk(kimi, tmp_path):
    kimi.swap("r2")
    shutil.move(kimi.runs, tmp_path / "disk")
    kimi.runs.symlink_to(tmp_path / "disk")
    assert kimi.now() == alive(kimi, "r2", server=str(tmp_path / "disk" / "r1"))


def test_without_the_link_that_says_it_the_last_draft_that_came_into_the_server_is_what_serves(kimi):
    kimi.swap("r2")
    kimi.share("r3")  # of a client that was killed before it exchanged anything
    kimi.make("r4")  # of a server of its own, which has ended
    kimi.write("r4", weights__json="{}")
    (kimi.root / "kimi" / "current").unlink()
    assert kimi.now() == alive(kimi, "r2")


def test_only_who_launched_a_process_is_told_as_its_launcher(kimi):
    kimi.swap("r2")
    told = asked("launched", kimi.runs)["launchers"]
    assert [line[:2] for line in told] == [[str(kimi.runs / "r1"), str(kimi.server.pid)]]


def test_a_start_counts_once_however_many_drafts_came_into_its_server(kimi):
    start = json.dumps({"of": {"engine": "x"}, "seconds": {"load": 5.0}})
    kimi.write("r1", phases__json=start, verdict__json='{"holds": false}')
    for name in ("r2", "r3"):
        kimi.swap(name)
        kimi.write(name, verdict__json='{"holds": true}')
    told = asked("timings", kimi.runs, "r1", "phases.json", "5", stdin='{"engine": "x"}')
    assert told == {"good": [{"load": 5.0}], "kept": True}


def test_what_it_shared_is_undone_before_a_server_of_its_own_is_launched_there(kimi):
    kimi.swap("r2")
    subprocess.run(["sh", "-c", UNSHARE, "sh", str(kimi.runs / "r2"), *TELLING], check=True)
    assert kimi.now() == alive(kimi, "r2", alive=False, server=str(kimi.runs / "r2"))
    assert (kimi.runs / "r1" / "pid").exists()


def test_it_is_ready_since_its_draft_came_and_torn_since_an_exchange_began(kimi):
    kimi.write("r1", phases__json="{}")
    kimi.swap("r2")
    for name, file, at in (("r1", "phases.json", 1000), ("r2", "weights.json", 2000)):
        os.utime(kimi.runs / name / file, (at, at))
    kimi.write("r1", swap__json="{}")
    os.utime(kimi.runs / "r1" / "swap.json", (3000, 3000))
    told = asked("status", kimi.work, "/nowhere/lock", "{}")["doing"][str(kimi.runs / "r2")]
    assert told == {"ready_at": 2000.0, "torn_at": 3000.0, "pids": [kimi.server.pid], "ready": None}


def test_what_a_torn_exchange_left_in_shared_memory_is_known_by_its_mark(kimi):
    name = f"torch_4194305_{os.urandom(4).hex()}_"
    kimi.swap("r2")
    kimi.write("r1", swap__json=json.dumps({"new": "r3", "shm": name, "since": 0}))
    piece = Path("/dev/shm") / f"{name}1"
    piece.write_bytes(b"weights")
    try:
        about = piece.stat()
        assert asked("launched", kimi.runs)["shared"] == [
            {"files": [[about.st_dev, about.st_ino, str(piece)]], "segments": []}
        ]
    finally:
        piece.unlink()
    for spoilt in ("", "[]", '{"shm": 3}', '{"shm": "nccl-"}'):
        kimi.write("r1", swap__json=spoilt)
        assert asked("launched", kimi.runs)["shared"] == []


def test_a_process_is_told_with_the_draft_that_came_into_it(kimi):
    for name in ("r1", "r2"):
        (kimi.work / f"draft-{name}").mkdir()
    kimi.swap("r2")
    for name in ("r1", "r2"):
        (kimi.runs / name / "draft").symlink_to(kimi.work / f"draft-{name}")
    argv, mark = ["sh", "-c", "read line", str(kimi.runs / "r1" / "draft")], {"DEPLOY_SERVER": str(kimi.runs / "r1")}
    with subprocess.Popen(argv, env=mark, stdin=subprocess.PIPE) as process:
        try:
            until(lambda: Path(f"/proc/{process.pid}/comm").read_text() == "sh\n", 10)
            told = asked("server", str(process.pid))
        finally:
            process.kill()
    assert (told["serving"], told["links"][argv[3]]) == (str(kimi.runs / "r2"), str(kimi.work / "draft-r2"))


def test_the_log_is_capped_as_the_run_that_serves_wishes(kimi, monkeypatch):
    """The companion of the server was launched in the folder of the first."""
    kimi.swap("r2")
    kimi.make("r3")  # is to have a server of its own
    for name, cap in (("r1", "1G"), ("r2", "2G"), ("r3", "3G")):
        kimi.write(name, manifest__json=json.dumps({"node": {"profile": {"log": {"cap": cap}}}}))
    monkeypatch.chdir(kimi.runs / "r1")
    told = logcap.Cap()
    assert told.now() == 2 << 30
    for name in ("r1", "r3"):
        kimi.lead("current", name)
        assert told.now() == 1 << 30
