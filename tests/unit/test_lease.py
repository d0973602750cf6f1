"""The lock on a host, held by real processes: who has it, who is told, when it is free again."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deploy import host
from deploy.errors import Locked
from deploy.inventory import Host
from deploy.locking import lease
from deploy.locking.lease import Lease
from deploy.remote import Remote
from deploy.transport.local import LocalTransport
from tests.project import PATIENCE, until

HOLDER = host.source("lease")
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="another user is needed, so root")

# A client as a process of its own: takes the lock, says so, and stays.
CLIENT = """
import sys, time
from deploy.locking import lease
from deploy.inventory import Host
from deploy.transport.local import LocalTransport
where = Host.model_validate({"name": "here", "transport": "local", "lock": sys.argv[1], "lease": float(sys.argv[2])})
held = lease.take(where, LocalTransport("here"), "up profile=kimi")
print("held", flush=True)
time.sleep(60)
"""


def where(lock: Path, seconds: float = 30.0) -> Host:
    return Host.model_validate({"name": "here", "transport": "local", "lock": str(lock), "lease": seconds})


def take(lock: Path, seconds: float = 30.0, reason: str = "up profile=kimi") -> Lease:
    return lease.take(where(lock, seconds), LocalTransport("here"), reason)


def is_free(lock: Path) -> bool:
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def locked(lock: Path) -> Locked:
    with pytest.raises(Locked) as caught:
        take(lock)
    return caught.value


@contextmanager
def client(lock: Path, seconds: float = 30.0) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", CLIENT, str(lock), str(seconds)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        try:
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


@contextmanager
def holder(lock: Path, token: str, prefix: list[str] | None = None) -> Iterator[Any]:
    """The host's program alone, as some user; gives its first answer."""
    argv = [
        *(prefix or []),
        "/usr/bin/python3",
        "-I",
        "-c",
        HOLDER,
        str(lock),
        "30",
        token,
        json.dumps({"user": "them"}),
        json.dumps({"work": str(lock.parent / "work"), "what": "up", "past": ""}),
    ]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        try:
            yield json.loads(process.stdout.readline() or process.stderr.read())
        finally:
            process.stdin.close()
            process.wait(timeout=PATIENCE)


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "deploy.lock"


@pytest.fixture
def common() -> Iterator[Path]:
    """A folder as /tmp is: everybody's, and sticky."""
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="deploy-test-"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


def test_a_second_one_is_told_who_holds_it_why_and_since_when(lock):
    with take(lock, reason="up profile=kimi"):
        told = locked(lock)
        assert f"(pid {os.getpid()}): up profile=kimi, since {time.strftime('%H:')}" in told.what
        assert told.exit_code == 4
        assert told.remedy
    assert is_free(lock)


def test_it_is_taken_anew_each_time_with_another_token(lock):
    with take(lock) as first:
        assert lock.read_text().splitlines()[0] == first.token
    with take(lock) as second:
        assert second.token != first.token


def test_it_is_free_after_the_clients_death(lock):
    with client(lock) as process:
        assert not is_free(lock)
        process.kill()
        until(lambda: is_free(lock))


def test_it_is_free_within_the_lease_when_the_client_is_frozen_and_its_token_is_gone(lock):
    with client(lock, seconds=2.0) as process:
        token = lock.read_text().splitlines()[0]
        os.kill(process.pid, signal.SIGSTOP)
        stopped = time.monotonic()
        until(lambda: lock.read_text() == "", what="the token is still there")
        assert time.monotonic() - stopped > 1.0
        assert token
        until(lambda: is_free(lock))


def test_a_client_that_is_heard_keeps_it_beyond_the_lease(lock):
    with take(lock, seconds=2.0) as held:
        deadline = time.monotonic() + 4.5
        until(lambda: time.monotonic() > deadline or lock.read_text().splitlines()[0] != held.token)
        assert lock.read_text().splitlines()[0] == held.token
        assert not is_free(lock)


def remote(held: Lease) -> Remote:
    made = Remote(where(Path(held.path)), LocalTransport("here"), lambda _: None, threading.Event())
    made.lease = held
    return made


CHANGES: list[Callable[[Remote, Path], Any]] = [
    lambda at, file: at.change('echo x >"$1"', str(file)),
    lambda at, file: at.write(str(file.parent), {file.name: "x"}),
    lambda at, file: at.change_python("import sys; open(sys.argv[1], 'w'); print('{}')", str(file)),
]


@pytest.mark.parametrize("change", CHANGES, ids=["script", "file", "program"])
def test_a_script_changes_something_only_while_the_lock_is_ours(change, lock, tmp_path):
    file = tmp_path / "changed"
    with take(lock) as held:
        change(remote(held), file)
        file.unlink()
        lock.write_text("f" * 32 + "\n{}\n")  # as the next holder writes it
        with pytest.raises(Locked, match="lapsed"):
            change(remote(held), file)
        assert not file.exists()
    with pytest.raises(Locked, match="lapsed"):
        change(remote(held), file)
    assert not file.exists()


def test_a_client_that_was_frozen_may_not_act_when_it_wakes_up(lock, tmp_path):
    held = take(lock, seconds=0.5)
    held._released.set()  # it sends nothing any more
    until(lambda: lock.read_text() == "")
    with take(lock), pytest.raises(Locked, match="lapsed"):
        remote(held).write(str(tmp_path), {"changed": "x"})
    held.release()


@as_root
@pytest.mark.parametrize("first", [[], NOBODY], ids=["root first", "nobody first"])
def test_users_of_the_machine_share_it_one_after_the_other(first, common):
    lock, second = common / "deploy.lock", [] if first else NOBODY
    with holder(lock, "one", first) as answer:
        assert answer == {"held": True}
        assert lock.stat().st_mode & 0o777 == 0o666
        with holder(lock, "two", second) as refused:
            assert refused == {"held": False, "owner": {"user": "them"}}
    with holder(lock, "two", second) as answer:
        assert answer == {"held": True}
        assert lock.read_text().splitlines()[0] == "two"


@as_root
def test_a_folder_that_is_not_ours_to_write_is_told(common):
    common.chmod(0o755)
    with holder(common / "deploy.lock", "one", NOBODY) as answer:
        assert answer == {"held": False, "error": "Permission denied"}


UNUSABLE = [
    ("a link", lambda path: path.symlink_to(path.with_name("elsewhere")), "it is a symbolic link"),
    ("a dangling link", lambda path: path.symlink_to(path.parent / "nothing"), "it is a symbolic link"),
    ("a folder", lambda path: path.mkdir(), "Is a directory"),
    ("a pipe", os.mkfifo, "not a regular file"),
    ("in no folder", lambda path: path.parent.rmdir(), "No such file or directory"),
]


@pytest.mark.parametrize(("make", "what"), [case[1:] for case in UNUSABLE], ids=[case[0] for case in UNUSABLE])
def test_what_cannot_be_a_lock_is_refused_in_words(make, what, tmp_path):
    lock = tmp_path / "folder" / "deploy.lock"
    lock.parent.mkdir()
    make(lock)
    told = locked(lock)
    assert f"the lock {lock} cannot be used: {what}" in told.what
    assert "inventory" in told.remedy
    assert "Traceback" not in str(told)


SPOILT = ["", "x", "token\nnot json\n", "token\n[1]", 'token\n"x"', "\xff\n\xfe\n"]


@pytest.mark.parametrize("content", SPOILT)
def test_a_file_that_says_nothing_of_its_owner_still_locks(content, lock):
    with take(lock):
        lock.write_text(content, encoding="latin-1")
        assert "somebody (no name was left)" in locked(lock).what
    take(lock).release()


def test_an_owner_who_did_not_tell_since_when_is_told_without(lock):
    with take(lock):
        lock.write_text('token\n{"user": "me", "since": "noon"}\n')
        assert "me@None (pid None): None, since a time not told" in locked(lock).what


def test_a_host_that_says_something_else_is_told_with_its_words(lock, tmp_path, monkeypatch):
    (tmp_path / "python3").write_text("#!/bin/sh\necho Welcome to gpu1\n")
    (tmp_path / "python3").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python3"))  # what the local transport runs programs with
    told = locked(lock)
    assert "could not be taken" in told.what
    assert told.evidence == "Welcome to gpu1"
