"""Holds and the audit as the host's own program keeps them: spoken to as a client does, and killed as a client is."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from deploy import host
from tests.project import PATIENCE, until

HOLDER = host.source("lease")
STATE = host.source("state")
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="another user is needed, so root")


class Client:
    """Who speaks to the host's program: `answer` is what it said first."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.answer = self.heard()

    def heard(self) -> Any:
        assert self.process.stdout and self.process.stderr
        return json.loads(self.process.stdout.readline() or self.process.stderr.read())

    def say(self, **order: Any) -> None:
        assert self.process.stdin
        self.process.stdin.write(b"..." + json.dumps(order).encode() + b"\n")
        self.process.stdin.flush()

    def hold(self, reason: str, seconds: float) -> Any:
        self.say(hold={"reason": reason, "seconds": seconds})
        return self.heard()

    def free(self) -> Any:
        self.say(hold=None)
        return self.heard()


class Machine:
    """A machine of its own: a folder as /tmp is, with a lock in it, and a work folder."""

    def __init__(self, folder: Path) -> None:
        self.lock, self.work = folder / "deploy.lock", folder / "work"

    @property
    def root(self) -> Path:
        return self.work / Path("/etc/machine-id").read_text().strip()

    @contextmanager
    def client(
        self, user: str = "ann", *prefix: str, past: str = "", lease: float = 30.0, **more: Any
    ) -> Iterator[Client]:
        who = json.dumps({"user": user, "host": "laptop", "reason": "up"})
        wish = json.dumps({"work": str(self.work), "what": f"deploy up by={user}", "past": past})
        argv = [*prefix, "/usr/bin/python3", "-I", "-c", HOLDER, str(self.lock), str(lease), "f" * 32, who, wish]
        pipe = subprocess.PIPE
        with subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, **more) as process:
            try:
                yield Client(process)
            finally:
                assert process.stdin
                process.stdin.close()
                process.wait(timeout=PATIENCE)

    def refused(self, user: str, *prefix: str) -> Any:
        """Whose hold stops a user, or None."""
        with self.client(user, *prefix) as client:
            return None if client.answer["held"] else client.answer["hold"].get("reason", "for no reason")

    def audit(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.root / "audit.jsonl").read_text().splitlines()]

    def seen(self, *prefix: str) -> Any:
        """What who only looks sees of the lock."""
        argv = [*prefix, "/usr/bin/python3", "-I", "-c", STATE, str(self.work), str(self.lock)]
        return json.loads(subprocess.run(argv, capture_output=True, check=True).stdout)["lock"]


@pytest.fixture
def machine() -> Iterator[Machine]:
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="deploy-test-"))
    folder.chmod(0o1777)
    yield Machine(folder)
    shutil.rmtree(folder)


# ---- a hold ------------------------------------------------------------------------------------------------------


def test_it_outlives_its_client_and_stops_all_but_its_owner(machine):
    with machine.client("ann") as client:
        assert client.hold("bench", 600)["done"]
    assert machine.refused("bob") == "bench"
    with machine.client("ann") as client:
        assert client.answer["held"] and 590 < client.answer["hold"]["left"] <= 600
    assert machine.refused("bob") == "bench"


def test_who_is_refused_changes_nothing(machine):
    with machine.client("ann") as client:
        client.hold("bench", 600)
    before = machine.lock.read_text()
    assert machine.refused("bob") == "bench"
    assert machine.lock.read_text() == before


def test_it_ends_by_itself(machine):
    with machine.client("ann") as client:
        client.hold("bench", 1.0)
    assert machine.refused("bob") == "bench"
    until(lambda: machine.refused("bob") is None)
    assert machine.lock.read_text() == ""


def test_its_owner_extends_it_and_ends_it(machine):
    for seconds in (600, 6000):
        with machine.client("ann") as client:
            client.hold("bench", seconds)
    with machine.client("ann") as client:
        assert client.answer["hold"]["left"] > 5900
        client.free()
    assert machine.refused("bob") is None


def test_another_passes_it_only_by_its_owner_s_name(machine):
    with machine.client("ann") as client:
        client.hold("bench", 600)
    with machine.client("bob", past="carl@laptop") as client:
        assert client.answer["hold"]["user"] == "ann"
    with machine.client("bob", past="ann@laptop") as client:
        assert client.answer["held"] and client.free()["done"]
    assert machine.refused("bob") is None
    assert [(line["who"], line["whose"]) for line in machine.audit() if line["event"] == "released"] == [
        ("bob@laptop", "ann@laptop")
    ]


def test_who_is_at_work_on_a_held_machine_is_told_with_the_hold(machine):
    with machine.client("ann") as client:
        client.hold("bench", 600)
        with machine.client("bob") as other:
            assert (other.answer["owner"]["user"], other.answer["hold"]["reason"]) == ("ann", "bench")


def test_a_kill_of_the_program_itself_leaves_the_hold_whole(machine):
    with machine.client("ann") as client:
        client.hold("bench", 600)
        client.process.kill()
    assert machine.refused("bob") == "bench"
    assert machine.refused("ann") is None


def test_a_kill_between_write_and_cut_leaves_lines_that_nobody_reads(machine):
    with machine.client("ann") as client:
        client.hold("bench", 600)
    with machine.lock.open("a") as file:
        file.write('rest of {"an": "older"} text\n{"user": "x", "until": 9e9}\n')
    assert machine.refused("bob") == "bench"
    assert machine.refused("ann") is None
    assert len(machine.lock.read_text().splitlines()) == 3


@pytest.mark.parametrize("line", ["x", "[]", "null", '{"until": "noon"}', '{"until": NaN}', f'{{"until": {10**400}}}'])
def test_a_third_line_that_is_no_hold_stops_nobody(machine, line):
    machine.lock.write_text(f"\n\n{line}\n")
    assert machine.refused("bob") is None


def test_a_hold_from_a_clock_that_was_years_ahead_stops_nobody(machine):
    then = time.time() + 400 * 86400
    machine.lock.write_text("\n\n" + json.dumps({"user": "ann", "host": "laptop", "until": then}) + "\n")
    assert machine.refused("bob") is None


@as_root
@pytest.mark.parametrize("first", [(), NOBODY], ids=["root first", "nobody first"])
def test_users_of_the_machine_hold_it_one_against_the_other(machine, first):
    second = () if first else NOBODY
    with machine.client("ann", *first) as client:
        client.hold("bench", 600)
    assert machine.refused("bob", *second) == "bench"
    with machine.client("bob", *second, past="ann@laptop") as client:
        assert client.hold("mine now", 600)["done"]
    assert machine.refused("ann", *first) == "mine now"


def test_who_only_looks_sees_who_works_and_who_holds_and_is_in_nobody_s_way(machine):
    assert machine.seen() == {}
    with machine.client("ann") as client:
        client.hold("bench", 600)
        seen = machine.seen()
        assert (seen["taken"], *(json.loads(line)["user"] for line in seen["lines"])) == (True, "ann", "ann")
    seen = machine.seen()
    assert (seen["taken"], seen["lines"][0], json.loads(seen["lines"][1])["reason"]) == (False, "", "bench")
    machine.lock.unlink()
    machine.lock.mkdir()
    assert machine.seen() == {"error": "not a regular file"}


@as_root
def test_a_lock_that_may_not_be_read_is_not_taken_for_one_that_nobody_has(machine):
    machine.lock.write_text("")
    machine.lock.chmod(0o600)
    assert machine.seen(*NOBODY) == {"error": "Permission denied"}
    machine.lock.unlink()
    machine.lock.symlink_to("/etc/hostname")
    assert machine.seen() == {"error": "it is a symbolic link"}


# ---- the audit ---------------------------------------------------------------------------------------------------


def told(client: Client) -> None:
    client.say(outcome={"exit_code": 0, "words": "done"})


def dies(client: Client) -> None:
    assert client.process.stdin
    client.process.stdin.write(b'..{"outcome": {"exit_co')  # in the middle of a word


ENDS: list[tuple[str, Callable[[Client], None], dict[str, Any]]] = [
    ("told", told, {"exit_code": 0, "words": "done"}),
    ("without a word", lambda _: None, {"exit_code": None, "words": "the client died"}),
    ("in the middle of one", dies, {"exit_code": None, "words": "the client died"}),
]


@pytest.mark.parametrize(("act", "outcome"), [case[1:] for case in ENDS], ids=[case[0] for case in ENDS])
def test_what_was_begun_and_how_it_ended_is_a_line_each(machine, act, outcome):
    machine.root.mkdir(parents=True)
    with machine.client("ann", env={**os.environ, "SSH_CONNECTION": "192.0.2.7 50000 192.0.2.11 22"}) as client:
        act(client)
    began, ended = machine.audit()
    always = {"id": "ffffffff", "who": "ann@laptop", "what": "deploy up by=ann", "from": "192.0.2.7"}
    assert [always.items() <= line.items() for line in (began, ended)] == [True, True]
    assert (began["event"], ended["event"], ended["outcome"].pop("seconds") >= 0) == ("began", "ended", True)
    assert ended["outcome"] == outcome
    assert abs(datetime.fromisoformat(began["when"]).timestamp() - time.time()) < 60


def test_silence_is_told_with_its_length(machine):
    machine.root.mkdir(parents=True)
    with machine.client("ann", lease=0.3) as client:
        client.process.wait(PATIENCE)
    assert machine.audit()[-1]["outcome"]["words"] == "the client was silent for 0.3 s"
    assert "from" in machine.audit()[0]


def test_where_nothing_was_ever_changed_nothing_is_written(machine):
    with machine.client("ann") as client:
        told(client)
    assert not machine.work.exists()


def test_what_was_begun_is_told_once_there_is_a_folder(machine):
    with machine.client("ann") as client:
        machine.root.mkdir(parents=True)
        told(client)
    assert [line["event"] for line in machine.audit()] == ["began", "ended"]


@pytest.mark.parametrize(("folder", "file"), [(0o700, 0o600), (0o755, 0o600), (0o775, 0o660), (0o1777, 0o666)])
def test_who_may_write_into_the_folder_may_append(machine, folder, file):
    machine.root.mkdir(parents=True)
    machine.root.chmod(folder)
    with machine.client("ann"):
        pass
    assert stat.S_IMODE((machine.root / "audit.jsonl").stat().st_mode) == file


UNWRITABLE = [
    ("a link", lambda file: file.symlink_to("/dev/null"), "it is a symbolic link"),
    ("a folder", lambda file: file.mkdir(), "Is a directory"),
    ("a pipe", os.mkfifo, "not a regular file"),
]


@pytest.mark.parametrize(("make", "why"), [case[1:] for case in UNWRITABLE], ids=[case[0] for case in UNWRITABLE])
def test_an_audit_that_cannot_be_written_is_a_note_and_stops_nobody(machine, make, why):
    machine.root.mkdir(parents=True)
    make(machine.root / "audit.jsonl")
    with machine.client("ann") as client:
        assert (client.answer["held"], why in client.answer["note"]) == (True, True)
        assert why in client.hold("bench", 600)["note"]
    assert machine.refused("bob") == "bench"


@as_root
def test_a_folder_of_another_user_is_a_note(machine):
    machine.root.mkdir(parents=True)
    with machine.client("ann", *NOBODY) as client:
        assert (client.answer["held"], "Permission denied" in client.answer["note"]) == (True, True)


def test_a_full_disk_is_a_note_and_its_half_line_spoils_no_other(machine):
    machine.root.mkdir(parents=True)
    file = machine.root / "audit.jsonl"
    file.write_text("{}" + " " * 4000 + "\n")
    full = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))}
    with machine.client("ann", **full) as client:
        assert (client.answer["held"], "No space left" in client.answer["note"]) == (True, True)
    assert not file.read_text().endswith("\n")
    with machine.client("bob"):
        pass
    lines = file.read_text().splitlines()
    assert [json.loads(line)["event"] for line in lines[2:]] == ["began", "ended"]
    assert [line.get("event") for line in json.loads(read(machine).stdout)] == [None, "began", "ended"]


def read(machine: Machine) -> subprocess.CompletedProcess[str]:
    argv = ["/usr/bin/python3", "-I", "-c", host.source("audit"), str(machine.root), "10"]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=PATIENCE)


UNREADABLE: list[tuple[str, Callable[[Path], object], str]] = [
    ("fifo", os.mkfifo, "not a regular file"),
    ("folder", Path.mkdir, "Is a directory"),
    ("device", lambda path: os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5)), "not a regular file"),
    ("link", lambda path: path.symlink_to("/etc/hostname"), "it is a symbolic link"),
]


@as_root
@pytest.mark.parametrize(("make", "why"), [case[1:] for case in UNREADABLE], ids=[case[0] for case in UNREADABLE])
def test_what_is_no_audit_is_told_at_once(machine, make, why):
    machine.root.mkdir(parents=True)
    make(machine.root / "audit.jsonl")
    done = read(machine)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (
        1, "", f"cannot read {machine.root}/audit.jsonl: {why}"
    )  # fmt: skip


def test_the_audit_is_told_as_json_whatever_stands_in_it(machine):
    machine.root.mkdir(parents=True)
    (machine.root / "audit.jsonl").write_text('{"a": NaN, "b": [-Infinity, 1e999, 1.5]}\n[1]\n{"c"\n')
    assert read(machine).stdout.strip() == '[{"a": null, "b": [null, null, 1.5]}]'


def test_a_client_that_is_killed_leaves_its_hold_and_a_line(machine, tmp_path):
    """The whole way: a client over the local transport holds, and is killed -9 before it can say a word."""
    script = tmp_path / "client.py"
    script.write_text(
        "import sys, time\nfrom deploy.locking import lease\nfrom deploy.inventory import Host\n"
        "from deploy.transport.local import LocalTransport\n"
        "here = {'name': 'here', 'transport': 'local', 'lock': sys.argv[1], 'work': sys.argv[2]}\n"
        "where = Host.model_validate(here)\n"
        "held = lease.take(where, LocalTransport('here'), 'hold here')\n"
        "held.hold('bench', 600)\nprint('held', flush=True)\ntime.sleep(60)\n"
    )

    argv = [sys.executable, str(script), str(machine.lock), str(machine.work)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env={**os.environ, "LOGNAME": "ann"}) as process:
        assert process.stdout and process.stdout.readline() == "held\n"
        process.send_signal(signal.SIGKILL)
    until(lambda: machine.audit()[-1]["event"] == "ended")
    assert machine.audit()[-1]["outcome"]["words"] == "the client died"
    assert machine.audit()[0]["who"] == f"ann@{socket.gethostname()}"
    assert machine.refused("bob") == "bench"
