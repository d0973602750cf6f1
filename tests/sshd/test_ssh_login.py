"""Why a host cannot be reached is told once, in words that help; what only needs patience gets it."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.errors import Unreachable
from deploy.transport import connect, trust
from tests.fleet import Keys, TestHost, loopback, run
from tests.project import PATIENCE, until


@pytest.fixture
def configure(keys: Keys, tmp_path, monkeypatch) -> Callable[..., None]:
    """Put lines before those of the session's ssh config, for one test."""

    def write(*lines: str) -> None:
        file = tmp_path / "config"
        file.write_text("Host *\n" + "\n".join(lines) + "\n" + keys.config.read_text())
        monkeypatch.setenv("DEPLOY_SSH_CONFIG", str(file))

    return write


def refusal(host: TestHost) -> Unreachable:
    with pytest.raises(Unreachable) as caught:
        connect(host)
    assert caught.value.remedy
    return caught.value


def test_nobody_listens(sshd):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        error = refusal(replace(sshd, address="127.0.0.1", port=free.getsockname()[1]))
    assert "connection refused" in error.what and "sshd" in error.remedy


def test_a_name_that_does_not_exist(sshd):
    error = refusal(replace(sshd, address="no-such-host.invalid"))
    assert "no-such-host.invalid" in error.what and "name is not known" in error.what


def test_a_host_that_does_not_answer(fleet, configure):
    configure("ConnectTimeout 1")
    (host,) = fleet(1)
    host.cut()
    try:
        error = refusal(host)
    finally:
        host.mend()
    assert "timed out" in error.what or "no route" in error.what
    connect(host).close()


def test_a_key_that_the_host_does_not_take(sshd, keys):
    error = refusal(replace(sshd, key=str(keys.make(f"other-{os.urandom(3).hex()}"))))
    assert "none of our keys" in error.what and "other-" in error.evidence and "refused by the host" in error.evidence


def test_a_key_with_a_passphrase_says_so(sshd, tmp_path):
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", str(tmp_path / "locked"))
    assert "passphrase" in refusal(replace(sshd, key=str(tmp_path / "locked"))).evidence


def test_a_key_that_is_not_there_says_so(sshd, tmp_path):
    error = refusal(replace(sshd, key=str(tmp_path / "missing")))
    assert str(tmp_path / "missing") in str(error)


def test_an_unknown_host_key_is_refused_with_its_fingerprint_and_how_to_add_it(sshd, configure, tmp_path):
    known = tmp_path / "known hosts"
    configure(f'UserKnownHostsFile "{known}"', "StrictHostKeyChecking no")
    error = refusal(sshd)
    assert "host key is not known" in error.what and "ssh-ed25519 SHA256:" in error.evidence
    assert error.remedy == f"deploy hosts trust {sshd.name}" and not known.exists()
    (stop,) = trust.way(sshd, {})
    (shown,) = trust.look([stop])
    assert isinstance(shown, trust.Shown) and trust.add(shown) == known
    connect(sshd).close()


def test_a_changed_host_key_is_refused_loudly(sshd, configure, keys, tmp_path):
    other = keys.make(f"changed-{os.urandom(3).hex()}")
    kind, blob, _ = other.with_name(f"{other.name}.pub").read_text().split()
    known = tmp_path / "known"
    known.write_text(f"[{sshd.address}]:{sshd.port} {kind} {blob}\n")
    configure(f"UserKnownHostsFile {known}", "StrictHostKeyChecking no")
    error = refusal(sshd)
    assert "CHANGED" in error.what and error.evidence.count("SHA256:") == 2 and "ssh-keygen -R" in error.remedy
    run("sh", "-c", error.remedy[error.remedy.index("ssh-keygen -R") :])
    assert "not known" in refusal(sshd).what


def _line(keys: Keys, sshd: TestHost) -> tuple[str, str]:
    name = f"[{sshd.address}]:{sshd.port}"
    lines = [line for line in keys.known_hosts.read_text().splitlines() if line.startswith(f"{name} ")]
    return name, lines[-1].removeprefix(f"{name} ")


@pytest.mark.parametrize(
    ("form", "fits"),
    [
        ("{name} {key}", True),
        ("other,{name} {key} with a comment", True),
        ("# {name} {key}", False),
        ("{address} {key}", True),  # as OpenSSH: without the port it is for every port
        ("[127.*]:* {key}", True),
        ("*,![{address}]:* {key}", True),
        ("*,!{address},![{address}]:* {key}", False),
        ("@revoked {name} {key}\n{name} {key}", False),
        ("@cert-authority {name} {key}", False),
        ("garbage\n\n{name} ssh-ed25519 !!!\n{name} {key}", True),
        ("|1|abc {key}\n|1|a|b {key}\n|1| {key}\n|1 {key}\n| {key}\n|1|é|é {key}\n{name} {key}", True),
        ("{name} ssh-ed25519 é\n{name} ssh-ed25519 AAAA\n{name} {torn}\n{name} {key}", True),
        ("{name} {torn}", False),
        ("{name} ssh-rsa {blob}", False),
        ("# a line\x0cend\u2028{name} {key}", False),
    ],
)
def test_known_hosts_is_read_as_openssh_reads_it(sshd, keys, configure, tmp_path, form, fits):
    name, key = _line(keys, sshd)
    known = tmp_path / "known"
    words = {"name": name, "address": sshd.address, "key": key, "torn": key[:-8], "blob": key.split()[1]}
    known.write_text(form.format(**words) + "\n")
    configure(f"UserKnownHostsFile {known}")
    asked = ["ssh", "-F", os.environ["DEPLOY_SSH_CONFIG"], "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes"]
    openssh = subprocess.run(
        [*asked, "-p", str(sshd.port), "-i", sshd.key, sshd.address, "true"], capture_output=True, check=False
    )
    assert (openssh.returncode == 0) == fits, openssh.stderr
    with contextlib.nullcontext() if fits else pytest.raises(Unreachable):
        connect(sshd).close()


def test_hashed_names_in_known_hosts_are_found(sshd, keys, configure, tmp_path):
    known = tmp_path / "known"
    known.write_text(" ".join(_line(keys, sshd)) + "\n")
    run("ssh-keygen", "-q", "-H", "-f", str(known))
    assert sshd.address not in known.read_text()
    configure(f"UserKnownHostsFile {known}")
    connect(sshd).close()


@pytest.mark.parametrize("kind", ["rsa", "ecdsa", "ed25519"])
def test_the_host_key_of_the_kind_we_know_is_asked_for(keys, kind):
    """With several host keys, one that is not in known_hosts must not be taken for an unknown host."""
    extra = keys.make(f"host-{kind}-{os.urandom(3).hex()}", kind)
    with loopback(keys, f"HostKey {extra}") as host:
        lines = keys.known_hosts.read_text().splitlines(keepends=True)
        keys.known_hosts.write_text("".join(line for line in lines if f":{host.port} " not in line))
        keys.know(extra, host.address, host.port)
        connect(host).close()


def test_of_several_known_host_keys_one_that_the_host_has_is_asked_for(keys):
    """Known are ed25519 (of old) and rsa; the host has ecdsa and rsa. Paramiko alone would end up with ecdsa."""
    old, rsa, ecdsa = (keys.make(f"host-{kind}-{os.urandom(3).hex()}", kind) for kind in ("ed25519", "rsa", "ecdsa"))
    with loopback(
        keys, f"HostKey {rsa}", f"HostKey {ecdsa}", "HostKeyAlgorithms rsa-sha2-512,ecdsa-sha2-nistp256"
    ) as host:
        lines = keys.known_hosts.read_text().splitlines(keepends=True)
        keys.known_hosts.write_text("".join(line for line in lines if f":{host.port} " not in line))
        keys.know(old, host.address, host.port)
        keys.know(rsa, host.address, host.port)
        connect(host).close()


@pytest.mark.parametrize("kind", ["rsa", "ecdsa", "ed25519"])
def test_keys_of_every_kind_log_in(keys, kind):
    key = keys.make(f"user-{kind}-{os.urandom(3).hex()}", kind)
    with loopback(keys, f"AuthorizedKeysFile {key}.pub") as host:
        connect(replace(host, key=str(key))).close()


@pytest.fixture
def agent(tmp_path) -> Iterator[Callable[..., Path]]:
    """An ssh-agent at a socket of its own, with keys; not the one in the environment."""
    path: Path = tmp_path / "agent"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL)

    def add(*keys: Path) -> Path:
        environ = {**os.environ, "SSH_AUTH_SOCK": str(path)}

        def answers() -> bool:  # the socket is there before anybody listens on it
            assert process.poll() is None
            return subprocess.run(["ssh-add", "-l"], env=environ, capture_output=True, check=False).returncode < 2

        until(answers)
        subprocess.run(["ssh-add", "-q", *keys], check=True, env=environ)
        return path

    yield add
    process.terminate()
    process.wait()


def test_the_agent_s_keys_log_in(sshd, keys, configure, agent):
    configure(f"IdentityAgent {agent(keys.user)}", "IdentitiesOnly no")
    connect(replace(sshd, key=None)).close()


def test_identities_only_keeps_other_keys_of_the_agent_back(sshd, keys, configure, agent):
    configure(f"IdentityAgent {agent(keys.user)}", "IdentitiesOnly yes")
    assert "there was no key" in refusal(replace(sshd, key=None)).evidence


def test_a_key_with_a_passphrase_works_through_the_agent(keys, configure, agent, tmp_path):
    key = keys.make(f"locked-{os.urandom(3).hex()}")
    socket_path = agent(key)
    run("ssh-keygen", "-q", "-p", "-N", "secret", "-f", str(key))
    configure(f"IdentityAgent {socket_path}", "IdentitiesOnly yes")
    with loopback(keys, f"AuthorizedKeysFile {key}.pub") as host:
        connect(replace(host, key=str(key))).close()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def unwilling(host: TestHost, times: int, word: bytes = b"") -> Iterator[TestHost]:
    """A port in front of a host that drops so many connections before it lets one through."""

    def serve() -> None:
        for _ in range(times):
            with door.accept()[0] as guest:
                guest.sendall(word)
        with door.accept()[0] as guest, socket.create_connection((host.address, host.port or 22)) as inner:
            threading.Thread(target=_pump, args=(inner, guest), daemon=True).start()
            _pump(guest, inner)

    def quiet() -> None:
        with contextlib.suppress(OSError):  # the door was shut
            serve()

    with socket.create_server(("127.0.0.1", 0)) as door:
        serving = threading.Thread(target=quiet, daemon=True)
        serving.start()
        yield replace(host, address="127.0.0.1", port=door.getsockname()[1])
        door.shutdown(socket.SHUT_RDWR)
        serving.join(PATIENCE)


@pytest.mark.parametrize("times", [1, 2])
def test_a_busy_sshd_that_drops_connections_gets_another_try(sshd, keys, times):
    with unwilling(sshd, times) as host:
        with keys.known_hosts.open("a") as file:
            file.write(f"[{host.address}]:{host.port} {_line(keys, sshd)[1]}\n")
        transport = connect(host)
        assert transport.run(["echo", "in"]).stdout == b"in\n"
        transport.close()


def test_what_is_not_ssh_says_so(sshd):
    with unwilling(sshd, 9, b"HTTP/1.1 400 Bad Request\r\n\r\n") as host:
        error = refusal(host)
    assert "broke off" in error.what and "something else" in error.remedy
