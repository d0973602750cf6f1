"""What goes wrong with SSH, Fabric and Paramiko, one case each, on real hosts."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import paramiko
import pytest
from paramiko.common import cMSG_CHANNEL_CLOSE, cMSG_CHANNEL_EOF

from deploy.errors import RemoteFailed, Unreachable
from deploy.transport import connect
from deploy.transport.ssh import SshTransport
from tests.fleet import loopback
from tests.project import PATIENCE, until

NOISE = """
echo "Welcome to the cluster!"; printf 'no newline'; printf 'pyenv: cannot rehash' >&2
"""
ALIVE = "\n ServerAliveInterval 1\n ServerAliveCountMax 2\n"


@pytest.fixture
def impatient(keys, tmp_path, monkeypatch):
    """A keep-alive of a second."""
    (tmp_path / "config").write_text(keys.config.read_text().replace("Host *", f"Host *{ALIVE}"))
    monkeypatch.setenv("DEPLOY_SSH_CONFIG", str(tmp_path / "config"))


def test_megabytes_of_output_take_no_minutes(sshd):
    there = connect(sshd)
    before = time.monotonic()
    assert len(there.run(["head", "-c", "30000000", "/dev/zero"], timeout=60, limit=32 << 20).stdout) == 30_000_000
    assert time.monotonic() - before < 20  # Fabric joins its output anew for each 1000 bytes: not done in 100 s
    there.close()


def test_refused_ports_leave_no_word_on_stderr(sshd, capfd):
    there = connect(sshd)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        for _ in range(5):
            with pytest.raises(ConnectionRefusedError):
                there.dial(free.getsockname()[1])
    there.close()
    assert capfd.readouterr() == ("", "")


def test_nothing_follows_the_close_of_a_program_that_ended_meanwhile(sshd, monkeypatch):
    """Its EOF is made before it ends, and sent after that was answered: sshd would end the connection for it."""
    send, closed = paramiko.Transport._send_user_message, threading.Event()  # type: ignore[attr-defined]

    def late(transport: paramiko.Transport, message: paramiko.Message) -> None:
        kind = message.asbytes()[:1]
        if kind == cMSG_CHANNEL_EOF and closed.wait(1.0):  # in good order, it never is
            transport.global_request("keepalive@openssh.com")  # sshd is through with the channel once it answers
        send(transport, message)
        if kind == cMSG_CHANNEL_CLOSE:
            closed.set()

    there = connect(sshd)
    monkeypatch.setattr(paramiko.Transport, "_send_user_message", late)
    assert there.run(["true"]).status == 0
    monkeypatch.undo()
    assert there.run(["cat"], stdin=b"still there").stdout == b"still there"
    there.close()


def test_many_programs_that_end_at_once_break_no_connection(sshd):
    there = connect(sshd)
    with ThreadPoolExecutor(4) as pool:
        ended = list(pool.map(lambda _: there.run(["true"], stdin=b"unread" * 500).status, range(100)))
    assert ended == [0] * 100
    there.close()


def test_why_sshd_ended_the_connection_is_told(sshd):
    there = connect(sshd)
    message = paramiko.Message()
    message.add_byte(cMSG_CHANNEL_EOF)
    message.add_int(99)
    there._transport._send_user_message(message)  # type: ignore[attr-defined]
    with pytest.raises(Unreachable, match="the connection was lost") as caught:
        until(lambda: there.run(["sleep", "0.1"]).status)
    assert "the other side ended it" in caught.value.evidence
    assert "nonexistent channel 99" in caught.value.evidence
    there.close()


def test_a_host_that_forwards_no_ports_says_so(keys):
    with loopback(keys, "AllowTcpForwarding no") as host:
        there = connect(host)
        with pytest.raises(Unreachable, match="opens no connections") as caught:
            there.dial(80)
        assert "AllowTcpForwarding" in caught.value.remedy
        there.close()


@pytest.mark.parametrize("sessions", [10, 7])  # 7: one fewer than we start at once, as where sshd is slow to free it
def test_sixteen_programs_at_once_fit_into_sshd_s_sessions(keys, sessions):
    with loopback(keys, f"MaxSessions {sessions}") as host:
        there = connect(host)
        statuses = []
        threads = [
            threading.Thread(target=lambda: statuses.append(there.run(["sleep", "0.1"]).status)) for _ in range(16)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert statuses == [0] * 16
        there.close()


def test_an_sshd_that_allows_fewer_sessions_says_so(keys):
    with loopback(keys, "MaxSessions 1") as host:
        there = connect(host)
        process = there.spawn(["cat"], deadline=30)
        with pytest.raises(Unreachable, match="starts no further program") as caught:
            there.run(["true"])
        assert "MaxSessions" in caught.value.remedy
        process.close_stdin()
        assert process.read(timeout=PATIENCE) == b""
        process.close()
        there.close()


def test_no_word_waits_for_a_delayed_acknowledgement(sshd):
    there = connect(sshd)
    inner = there._transport.sock  # type: ignore[attr-defined]
    assert inner.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    there.close()


@pytest.mark.parametrize("shell", ["/bin/bash", "/bin/dash"])
def test_what_a_login_shell_prints_does_not_reach_the_output(keys, shell):
    with loopback(keys, shell=shell, bashrc=NOISE) as host:
        there = connect(host)
        result = there.run(["sh", "-c", "cat; echo err >&2; exit 3"], stdin=b"in")
        assert (result.status, result.stdout, result.stderr) == (3, b"in", b"err\n")
        there.close()


def test_a_login_shell_that_traces_itself_does_not_either(keys):
    with loopback(keys, shell="/bin/bash", bashrc="set -x\n") as host:
        there = connect(host)
        assert there.run(["sh", "-c", "echo err >&2"]).stderr == b"err\n"
        there.close()


def test_a_login_shell_that_ends_first_is_told_with_its_last_words(keys):
    with loopback(keys, shell="/bin/bash", bashrc="echo you shall not pass; exit 7\n") as host:
        there = connect(host)
        with pytest.raises(RemoteFailed, match="login shell ended with status 7") as caught:
            there.run(["true"])
        assert caught.value.evidence == "you shall not pass"
        process = there.spawn(["true"], deadline=5)
        with pytest.raises(RemoteFailed):
            process.read(timeout=5)
        process.close()
        there.close()


def test_a_program_killed_by_a_signal_is_not_a_lost_connection(sshd):
    there = connect(sshd)
    result = there.run(["sh", "-c", 'kill -s KILL -- "-$(ps -o pgid= $$ | tr -d " ")"'])
    assert result.status == 137
    there.close()


@pytest.mark.parametrize("how", ["cut", "drop"])
def test_a_host_that_vanishes_in_the_middle_is_unreachable_and_no_hang(fleet, impatient, how):
    (host,) = fleet(1)
    there = connect(host)
    process = there.spawn(["sleep", "60"], deadline=60)
    errors: list[Exception] = []

    def wait() -> None:
        try:
            there.run(["sleep", "30"], timeout=40)
        except Unreachable as error:
            errors.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    while "sleep 30" not in host.inside("ps", "ax"):
        time.sleep(0.05)
    if how == "cut":
        host.cut()
    else:
        host.inside("nft", "add table inet t; add chain inet t c { type filter hook input priority 0; policy drop; }")
    try:
        with pytest.raises(Unreachable):
            process.read(timeout=15)
        waiting.join(PATIENCE)
        assert len(errors) == 1
        before = time.monotonic()
        with pytest.raises(Unreachable):
            there.run(["true"])
        with pytest.raises(Unreachable):
            there.dial(22)
        with pytest.raises(BrokenPipeError):
            process.write(b"x")
        assert time.monotonic() - before < 20
    finally:
        if how == "cut":
            host.mend()
        else:
            host.inside("nft", "delete table inet t")
        process.close()
        there.close()
    again = connect(host)  # what was left there ends at its own deadline
    assert again.run(["true"]).status == 0
    again.close()


def test_a_connection_that_is_cut_while_a_file_is_put_leaves_the_old_file(fleet, impatient):
    (host,) = fleet(1)
    there = connect(host)
    there.put("/tmp/kept", b"old")
    process = there.spawn(["sh", "-c", "cat >/dev/null"], deadline=30)
    host.cut()
    try:
        with pytest.raises(Unreachable):
            there.put("/tmp/kept", b"new" * 10_000_000)
    finally:
        host.mend()
    process.close()
    there.close()
    again = connect(host)
    assert again.run(["cat", "/tmp/kept"]).stdout == b"old"
    again.close()


PUTTER = """
import sys
from deploy.transport import connect
from deploy.transport.ssh import SshTransport
from tests.fleet import TestHost
address, key = sys.argv[1:]
connect(TestHost("x", address, key)).put("/tmp/half", b"new" * 10_000_000)
"""


def test_a_client_that_is_killed_while_it_puts_a_file_leaves_the_old_file(fleet):
    (host,) = fleet(1)
    there = connect(host)
    there.put("/tmp/half", b"old")
    words = [sys.executable, "-c", PUTTER, host.address, host.key]
    with host.slowed("40mbit"), subprocess.Popen(words, cwd=Path(__file__).parents[2]) as client:
        while not there.run(["sh", "-c", "find /tmp/half.* -size +100k"]).stdout:
            time.sleep(0.02)
        client.kill()
    deadline = time.monotonic() + PATIENCE
    while there.run(["sh", "-c", "ls /tmp/half.*"]).status == 0:
        assert time.monotonic() < deadline
    assert there.run(["cat", "/tmp/half"]).stdout == b"old"
    there.close()


def test_an_sshd_that_is_killed_is_noticed_at_once(keys):
    with loopback(keys) as host:
        there = connect(host)
        process = there.spawn(["sh", "-c", "ps -o ppid= $(ps -o ppid= $PPID); sleep 30"], deadline=30)
        session = int(process.read(timeout=PATIENCE))
        os.kill(session, signal.SIGKILL)
        with pytest.raises(Unreachable, match="connection was lost") as lost:
            process.read(timeout=10)
        assert lost.value.evidence == "the other side closed it"
        assert isinstance(there, SshTransport)
        there._transport.get_exception()  # as paramiko does where a channel was just being opened
        with pytest.raises(Unreachable) as later:
            there.run(["true"])
        assert later.value.evidence == "the other side closed it"
        process.close()
        there.close()


def test_a_host_that_falls_silent_is_told_as_such(keys, impatient):
    with loopback(keys) as host:
        there = connect(host)
        process = there.spawn(["sh", "-c", "ps -o ppid= $(ps -o ppid= $PPID); sleep 30"], deadline=30)
        session = int(process.read(timeout=PATIENCE))
        os.kill(session, signal.SIGSTOP)
        try:
            for use in (lambda: process.read(timeout=PATIENCE), lambda: there.run(["true"]), lambda: there.dial(1)):
                with pytest.raises(Unreachable, match="connection was lost") as lost:
                    use()
                assert lost.value.evidence == "no answer to our keep-alive for 2 s"
        finally:
            os.kill(session, signal.SIGCONT)
        process.close()
        there.close()


CLIENT = """
import os, sys
from deploy.transport import connect
from deploy.transport.ssh import SshTransport
from tests.fleet import TestHost
kind, address, port, key, nap = sys.argv[1:]
there = connect(TestHost("x", address, key, int(port or 0) or None, transport=kind))
words = ["sh", "-c", f"(trap '' TERM; exec sleep {nap}1) & sleep {nap}2"]
processes = [there.spawn(words, deadline=1) for _ in range(6)]
print("running", flush=True)
processes[0].read()
"""


@pytest.mark.parametrize("kind", ["ssh", "local"])
def test_the_deadline_holds_when_the_client_is_killed(sshd, kind):
    nap = f"{600 + secrets.randbelow(10**6) / 10**6:.6f}"  # its own, to be found by
    words = [sys.executable, "-c", CLIENT, kind, sshd.address, str(sshd.port), sshd.key, nap]
    with subprocess.Popen(words, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as client:
        assert client.stdout
        assert client.stdout.readline() == b"running\n"
        client.kill()
    deadline = time.monotonic() + PATIENCE
    while naps := subprocess.run(["pgrep", "-f", f"sleep {nap}"], capture_output=True, check=False).stdout:
        assert time.monotonic() < deadline, naps
        time.sleep(0.05)


def test_standard_input_of_ours_is_not_read(sshd):
    there = connect(sshd)
    reader, writer = os.pipe()
    saved = os.dup(0)
    os.dup2(reader, 0)
    try:
        os.write(writer, b"for somebody else")
        assert there.run(["cat"]).stdout == b""
        assert os.read(0, 100) == b"for somebody else"
    finally:
        os.dup2(saved, 0)
        for number in (reader, writer, saved):
            os.close(number)
        there.close()


def test_one_thread_each_may_go_through_the_same_jump_host(sshd, keys):
    with loopback(keys) as door:
        target = replace(sshd, jump="door")
        answers = []

        def one() -> None:
            there = connect(target, {"door": door})
            answers.append(there.run(["echo", "x"]).stdout)
            there.close()

        threads = [threading.Thread(target=one) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert answers == [b"x\n"] * 4


def test_too_many_bytes_of_words_are_refused_before_they_are_sent(sshd):
    there = connect(sshd)
    with pytest.raises(ValueError, match="stdin"):
        there.run(["echo", "x" * 140_000])
    assert len(there.run(["echo", "x" * 125_000]).stdout) == 125_001
    there.close()


def test_no_thread_and_no_process_is_left_when_a_host_is_let_go(sshd):
    before = threading.active_count()
    there = connect(sshd)
    there.run(["true"])
    there.close()
    deadline = time.monotonic() + PATIENCE
    while threading.active_count() > before:
        assert time.monotonic() < deadline, threading.enumerate()
        time.sleep(0.02)
