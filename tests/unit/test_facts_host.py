"""Facts asked of this very machine: real sockets, real zombies, processes with names that mislead."""

# mypy: allow-untyped-defs, allow-untyped-calls

import ast
import functools
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deploy import facts, host
from deploy.facts import disks, interpreter, processes, sockets
from deploy.host.patient import Patience
from tests.project import until

FAKE = str(Path(__file__).parents[1] / "fake_server.py")


class Here(facts.Asks):
    """This machine, as a fact sees a host."""

    def __init__(self, python=sys.executable):
        self.words = [python, "-I", "-c"]

    def run(self, *argv, ok=(0,), timeout=30.0):
        raise NotImplementedError

    def python(self, source, *args, timeout=30.0):
        done = subprocess.run([*self.words, source, *args], capture_output=True, check=True, timeout=timeout)
        return json.loads(done.stdout)


def by_pid(pid):
    return next((p for p in processes.read(Here()).all if p.pid == pid), None)


@pytest.fixture
def started():
    """Starts programs that end with the test."""
    running = []

    def start(*argv, **options):
        running.append(subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.communicate()


def test_a_process_in_state_d_is_not_waited_for_for_ever(tmp_path):
    """Nor any number of them; those that do answer are heard, and others are read at once."""
    pipe = tmp_path / "nobody writes here"
    os.mkfifo(pipe)
    patience, began = Patience(0.5), time.monotonic()

    assert [patience.read("D", Path.read_text, pipe) for _ in range(5)] == [None] * 5
    assert patience.read("D", len, "four") == 4
    assert patience.read("S", len, "four") == 4
    with pytest.raises(FileNotFoundError):
        patience.read("D", Path.read_text, tmp_path / "none")
    assert time.monotonic() - began < 30
    os.close(os.open(pipe, os.O_RDWR))  # so that they end


def test_the_looker_finds_itself_and_its_parents():
    found = processes.read(Here())

    assert os.getpid() in found.ancestors(found.asked_by)
    assert found.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_no_thread_of_the_kernel_is_listed():
    assert not [p for p in processes.read(Here()).all if p.ppid == 2 and not p.cmdline]


def test_a_process_is_seen_with_its_run_session_and_words(started):
    child = started("sleep", "100", env={"DEPLOY_SERVER": "run 1"}, start_new_session=True)

    seen = until(lambda: (p := by_pid(child.pid)) and p.name == "sleep" and p)

    assert (seen.run, seen.session, seen.pgrp, seen.uid) == ("run 1", child.pid, child.pid, os.getuid())
    assert seen.cmdline == ("sleep", "100")
    assert 0 <= seen.age < 10
    assert not seen.zombie


def test_a_process_is_seen_with_its_memory_and_where_its_words_go(started, tmp_path):
    with (tmp_path / "server.log").open("ab") as log:
        child = started("sleep", "100", env={}, stderr=log)

    seen = until(lambda: (p := by_pid(child.pid)) and p.name == "sleep" and p)

    assert (seen.run, seen.wiped, seen.writes) == ("", True, (str(tmp_path / "server.log"),))
    assert 0 < seen.rss < 1 << 30
    assert not by_pid(os.getpid()).wiped


@pytest.mark.skipif(os.getuid() != 0, reason="makes a namespace")
def test_a_process_of_another_pid_namespace_has_two_pids(started):
    outer = started("unshare", "--pid", "--fork", "--kill-child", "sleep", "100")

    def inner():
        return next((p for p in processes.read(Here()).all if p.ppid == outer.pid and p.name == "sleep"), None)

    seen = until(inner)

    assert (seen.inside, by_pid(outer.pid).inside) == (1, None)


def test_a_name_with_spaces_and_parentheses_misleads_nobody(started, tmp_path):
    program = tmp_path / "a) Z (1 2"
    program.write_bytes(Path("/bin/sleep").read_bytes())
    program.chmod(0o755)
    child = started(str(program), "100")

    seen = until(lambda: (p := by_pid(child.pid)) and p.name != "python3" and p.name.startswith("a)") and p)

    assert (seen.name, seen.ppid, seen.state in "SD") == ("a) Z (1 2", os.getpid(), True)


def test_words_that_are_no_text_can_still_be_printed(started):
    child = started("sh", "-c", "read line; exit", b"\xff\xfe\n")

    seen = until(lambda: (p := by_pid(child.pid)) and p.name == "sh" and p)

    assert seen.cmdline[-1] == "\\xff\\xfe\n"
    json.dumps(seen.cmdline).encode("utf-8")


def test_a_zombie_is_told_apart(started):
    child = started("true")

    seen = until(lambda: (p := by_pid(child.pid)) and p.state == "Z" and p)

    assert seen.zombie
    assert processes.read(Here()).get(child.pid, seen.start_ticks) is None


def test_a_process_whose_first_thread_ended_is_no_zombie(started):
    code = (
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=(100,)).start()\n"
        "ctypes.CDLL(None).syscall(60, 0)\n"  # exit of this thread alone
    )
    child = started(sys.executable, "-c", code)

    seen = until(lambda: (p := by_pid(child.pid)) and p.state == "Z" and p)

    assert (seen.threads, seen.zombie) == (1 + 1, False)


@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user")
def test_what_may_not_be_read_is_unknown(started):
    """An ordinary user sees root's processes and sockets, but not their environment and owners."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        program = host.source("processes"), host.source("sockets")
        drop = functools.partial(os.setuid, 65534)
        told = [
            json.loads(started("/usr/bin/python3", "-I", "-c", source, preexec_fn=drop).communicate()[0])
            for source in program
        ]
        mine = next(p for p in processes.parse(told[0]).all if p.pid == os.getpid())
        owners = [entry.pids for entry in sockets.on(listening.getsockname()[1], sockets.parse(told[1]))]

    assert (mine.run, mine.uid) == (None, 0)
    assert owners == [None]


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_a_listening_socket_is_found_with_its_owner(family, address):
    with socket.create_server((address, 0), family=family) as listening:
        port = listening.getsockname()[1]
        while_open = sockets.on(port, sockets.read(Here()))
    after = sockets.on(port, sockets.read(Here()))

    assert while_open == (sockets.Listener(address, port, os.getuid(), (os.getpid(),)),)
    assert after == ()


def test_a_socket_that_a_child_inherited_has_both_as_owners(started):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        child = started("sleep", "100", pass_fds=[listening.fileno()])
        (found,) = sockets.on(listening.getsockname()[1], sockets.read(Here()))

    assert set(found.pids or ()) == {os.getpid(), child.pid}


def test_an_outgoing_connection_does_not_listen():
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_connection(listening.getsockname()) as out:
        assert sockets.on(out.getsockname()[1], sockets.read(Here())) == ()


def test_room_is_told_for_a_path_that_is_not_there_yet(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))

    wished, proc = disks.read(Here(), "~/a/b c/d", "/proc/1")

    assert wished.there == str(tmp_path)
    assert (wished.exists, wished.writable) == (False, True)
    assert wished.total >= wished.free > 0
    assert (proc.kind, proc.mount, proc.exists) == ("proc", "/proc", True)


def test_a_path_below_a_loop_of_links_is_still_answered(tmp_path):
    (tmp_path / "loop").symlink_to("loop")

    (found,) = disks.read(Here(), str(tmp_path / "loop" / "x"))

    assert found.there == str(tmp_path)


def test_a_distribution_is_found_without_being_imported():
    before = set(sys.modules)
    found = interpreter.read(Here(), sys.executable, "pytest")

    assert (found.installed, found.error) == (pytest.__version__, "")
    assert found.version == ".".join(map(str, sys.version_info[:3]))
    assert found.machine == os.uname().machine
    assert set(sys.modules) == before


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        (None, 0, "does not exist"),
        ("#!/bin/sh\n", 0o644, "cannot be executed"),
        ("#!/no/such/python\n", 0o755, "No such file"),
        ("#!/bin/sh\necho broken >&2; exit 3\n", 0o755, "ended with status 3: broken"),
        ("#!/bin/sh\necho welcome\n", 0o755, "ended with status 0: welcome"),
    ],
)
def test_an_interpreter_that_does_not_run_says_why(tmp_path, content, mode, said):
    path = tmp_path / "my python"
    if content is not None:
        path.write_text(content)
        path.chmod(mode)

    found = interpreter.read(Here(), str(path), "sglang")

    assert (found.installed, found.version) == (None, None)
    assert said in found.error


def test_a_distribution_that_is_not_installed_is_an_error_beside_the_version():
    found = interpreter.read(Here(), sys.executable, "no-such-thing")

    assert found.installed is None
    assert found.version is not None
    assert "no-such-thing is not installed there" in found.error


def test_the_current_folder_does_not_count_as_installed(tmp_path, monkeypatch):
    info = tmp_path / "sglang-9.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sglang\nVersion: 9.9\n")
    monkeypatch.chdir(tmp_path)

    assert interpreter.read(Here(), sys.executable, "sglang").installed != "9.9"


def test_what_stands_on_the_servers_own_path_counts_first(tmp_path):
    info = tmp_path / "pytest-9.9+own.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pytest\nVersion: 9.9+own\n")

    assert interpreter.read(Here(), sys.executable, "pytest", str(tmp_path)).installed == "9.9+own"


def test_the_fake_server_plays_an_interpreter(monkeypatch):
    assert interpreter.read(Here(), FAKE, "sglang").installed == "0.5.20"

    monkeypatch.setenv("FAKE", '{"version": ""}')
    assert "not installed" in interpreter.read(Here(), FAKE, "sglang").error


MODES = [(0o755, False), (0o775, False), (0o777, True), (0o1777, False), (0o702, True)]


@pytest.mark.parametrize(("mode", "exposed"), MODES)
def test_a_folder_that_anybody_may_write_into_exposes_what_is_in_it(mode, exposed, tmp_path):
    (tmp_path / "work" / "runs").mkdir(parents=True)
    (tmp_path / "work").chmod(mode)
    here, missing = disks.read(Here(), str(tmp_path / "work" / "runs"), str(tmp_path / "work" / "no" / "such"))
    assert here.exposed == missing.exposed == [str(tmp_path / "work")] * exposed


PROGRAMS = [
    ("processes", ()),
    ("sockets", ()),
    ("disks", ("/x",)),
    ("interpreter", ("python3", "pip", "")),
    ("launched", ("/x",)),
    ("leftovers", ("/x",)),
    ("sweep", ("[]", "[]")),
    ("end", ("TERM", "[]")),
]


@pytest.mark.parametrize(("name", "args"), PROGRAMS)
def test_host_programs_use_nothing_newer_than_python_3_8(name, args):
    ast.parse(host.source(name), feature_version=(3, 8))
    for minor in range(8, sys.version_info.minor):  # those of this machine, if any
        python = f"python3.{minor}"
        if shutil.which(python) and subprocess.run([python, "-c", ""], check=False).returncode == 0:
            assert Here(python).python(host.source(name), *args)
