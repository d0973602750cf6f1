"""Every option of OpenSSH's configuration is followed, known to make no difference, or refused by name."""

from __future__ import annotations

import getpass
import os
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.errors import ConfigError, Unreachable
from deploy.transport import _options, connect
from deploy.transport.openssh import resolve
from tests.fleet import Keys, TestHost, loopback
from tests.project import PATIENCE

PLAIN = TestHost("gpu1", "gpu1", "", user=None)


@pytest.fixture
def configure(tmp_path, monkeypatch) -> Callable[[str], None]:
    def write(text: str) -> None:
        (tmp_path / "config").write_text(text)
        monkeypatch.setenv("DEPLOY_SSH_CONFIG", str(tmp_path / "config"))

    return write


def test_every_option_that_this_openssh_prints_is_in_the_table():
    printed = subprocess.run(["ssh", "-G", "-F", "/dev/null", "x"], capture_output=True, text=True, check=True).stdout
    known = {**_options.FOLLOWED, **_options.HARMLESS, **_options.REFUSED}
    assert [line for line in printed.splitlines() if line.split()[0].lower() not in known] == []
    assert len(known) == len(_options.FOLLOWED) + len(_options.HARMLESS) + len(_options.REFUSED)


def test_openssh_s_defaults_are_not_refused(configure):
    configure("")
    route = resolve(PLAIN, {})
    assert (route.hostname, route.port, route.user, route.via) == ("gpu1", 22, getpass.getuser(), None)


@pytest.mark.parametrize(
    "line",
    [
        "PubkeyAuthentication no",
        "CertificateFile /etc/ssh/cert.pub",
        "PKCS11Provider /usr/lib/token.so",
        "RevokedHostKeys /etc/ssh/revoked",
        "KnownHostsCommand /bin/true",
        "PermitLocalCommand yes",
        "PreferredAuthentications password",
        "StdinNull yes",
        "SessionType none",
        "Tunnel yes",
        "ProxyUseFdpass yes",
        "RequiredRSASize 3072",
        "BindInterface lo",
    ],
)
def test_what_cannot_be_followed_is_refused_by_name(configure, line):
    configure(f"Host gpu1\n {line}\n")
    with pytest.raises(ConfigError) as caught:
        resolve(PLAIN, {})
    assert line.split()[0].lower() in caught.value.evidence and caught.value.remedy


@pytest.mark.parametrize(
    "line",
    [
        "ForwardAgent yes",
        "ForwardX11 yes",
        "LocalForward 8080 localhost:80",
        "RemoteCommand tmux attach",
        "RequestTTY force",
        "GSSAPIAuthentication yes",
        "HashKnownHosts yes",
        "SendEnv LANG LC_*",
        "ControlMaster auto",
        "ControlPath ~/.ssh/%C",
        "ControlPersist 10m",
        "LogLevel DEBUG",
        "IPQoS throughput",
        "AddKeysToAgent yes",
        "PreferredAuthentications publickey,password",
        "Match host gpu1 exec true",
        "Tag x",
    ],
)
def test_what_makes_no_difference_or_is_followed_is_let_pass(configure, line):
    configure(f"IgnoreUnknown Tag\nHost gpu1\n {line}\n")
    resolve(PLAIN, {})


def test_the_inventory_overrides_openssh_s_configuration(configure, tmp_path):
    configure("Host gpu1\n HostName 192.0.2.7\n User them\n Port 2200\n ProxyJump bastion\n IdentityFile /their/key\n")
    route = resolve(
        replace(PLAIN, user="me", port=2201, key=str(tmp_path / "100% mine"), jump="you@[2001:db8::1]:99"), {}
    )
    assert (route.hostname, route.user, route.port) == ("192.0.2.7", "me", 2201)
    assert [str(path) for path in route.identities] == [str(tmp_path / "100% mine"), "/their/key"]
    assert route.via and (route.via.hostname, route.via.user, route.via.port) == ("2001:db8::1", "you", 99)


def test_jump_hosts_are_resolved_as_openssh_does(configure):
    configure("Host gpu1\n ProxyJump a,me@b:33\nHost a\n HostName 192.0.2.1\n ProxyJump z\nHost b\n ProxyJump never\n")
    route = resolve(PLAIN, {})
    way = []
    hop = route.via
    while hop:
        way.append((hop.hostname, hop.user, hop.port))
        hop = hop.via
    me = getpass.getuser()
    assert way == [("b", "me", 33), ("192.0.2.1", me, 22), ("z", me, 22)]


def test_a_jump_may_be_a_host_of_the_inventory(configure):
    configure("")
    known = {"door": replace(PLAIN, name="door", address="192.0.2.9", user="porter", port=2222, jump="192.0.2.8")}
    via = resolve(replace(PLAIN, jump="door"), known).via
    assert via and via.via
    assert (via.hostname, via.user, via.port, via.via.hostname) == ("192.0.2.9", "porter", 2222, "192.0.2.8")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("Host gpu1\n ProxyJump a\nHost a\n ProxyJump b\nHost b\n ProxyJump a\n", "circle"),
        ("Host *\n ProxyJump a\n", "loop"),
        ("Host gpu1\n NoSuchOption yes\n", "NoSuchOption".lower()),
    ],
)
def test_a_configuration_that_cannot_work_is_an_error_that_says_so(configure, text, says):
    configure(text)
    with pytest.raises(ConfigError) as caught:
        resolve(PLAIN, {})
    assert says in str(caught.value).lower()


def test_a_word_in_a_file_name_that_is_not_known_is_refused(configure):
    configure("Host gpu1\n IdentityFile /keys/%C\n")
    with pytest.raises(ConfigError, match="'C'"):
        _ = resolve(PLAIN, {}).identities


# ---- followed, on a real sshd ------------------------------------------------------------------------------------


@pytest.fixture
def via_config(sshd, keys, configure) -> Callable[..., TestHost]:
    """The loopback host, known only through the lines of an ssh config."""

    def host(*lines: str, leave: str = "") -> TestHost:
        all_lines = {
            "HostName": sshd.address, "Port": sshd.port, "User": sshd.user, "IdentityFile": keys.user,
            "UserKnownHostsFile": keys.known_hosts,
        }  # fmt: skip
        body = [*lines, *(f"{name} {value}" for name, value in all_lines.items() if name != leave)]
        configure("Host gpu1\n" + "\n".join(f" {line}" for line in body) + "\n")
        return PLAIN

    return host


def said(host: TestHost, *argv: str) -> str:
    transport = connect(host)
    try:
        return transport.run(argv).stdout.decode()
    finally:
        transport.close()


@pytest.mark.parametrize(
    "line",
    [
        "",
        "Compression yes",
        "AddressFamily inet",
        "Ciphers chacha20-poly1305@openssh.com,aes256-gcm@openssh.com",
        "Ciphers aes128-ctr",
        "MACs hmac-sha2-512",
        "KexAlgorithms sntrup761x25519-sha512@openssh.com,ecdh-sha2-nistp256",
        "HostKeyAlgorithms ssh-ed25519",
        "PubkeyAcceptedAlgorithms ssh-ed25519",
        "ConnectTimeout 5",
        "ConnectionAttempts 2",
        "ServerAliveInterval 1",
    ],
)
def test_a_login_by_the_configuration_alone(via_config, line):
    assert said(via_config(line), "echo", "in") == "in\n"


def test_the_chosen_algorithms_are_the_ones_used(via_config):
    transport = connect(via_config("Ciphers aes256-ctr", "MACs hmac-sha2-512", "Compression yes"))
    inner = transport._transport  # type: ignore[attr-defined]
    assert (inner.local_cipher, inner.local_mac, inner.local_compression) == (
        "aes256-ctr",
        "hmac-sha2-512",
        "zlib@openssh.com",
    )
    transport.close()


def test_algorithms_that_are_not_known_here_are_refused_by_name(via_config):
    with pytest.raises(ConfigError, match="ciphers"):
        connect(via_config("Ciphers chacha20-poly1305@openssh.com"))


def test_the_wrong_address_family_finds_no_address(via_config):
    with pytest.raises(Unreachable):
        connect(via_config("AddressFamily inet6"))


def test_the_bind_address_is_ours(via_config):
    assert said(via_config("BindAddress 127.9.9.9"), "sh", "-c", "echo $SSH_CONNECTION").startswith("127.9.9.9 ")


def test_a_host_key_alias_is_looked_up_instead(via_config, sshd, keys, tmp_path):
    (line,) = [x for x in keys.known_hosts.read_text().splitlines() if x.startswith(f"[{sshd.address}]:{sshd.port} ")]
    (tmp_path / "known").write_text("the-alias " + line.split(" ", 1)[1] + "\n")
    mine = f"UserKnownHostsFile {tmp_path}/known"
    assert said(via_config("HostKeyAlias the-alias", mine), "echo", "in") == "in\n"
    with pytest.raises(Unreachable) as caught:
        connect(via_config("HostKeyAlias another", mine))
    assert "not known" in caught.value.what


def test_setenv_reaches_the_program_where_sshd_accepts_it(keys, tmp_path, monkeypatch):
    with loopback(keys, "AcceptEnv DEPLOY_*") as host:
        (tmp_path / "config").write_text("SetEnv DEPLOY_X='a b'\n" + keys.config.read_text())
        monkeypatch.setenv("DEPLOY_SSH_CONFIG", str(tmp_path / "config"))
        assert said(host, "sh", "-c", "echo $DEPLOY_X") == "a b\n"


def test_a_way_through_two_jump_hosts(keys, sshd, monkeypatch):
    with loopback(keys) as first, loopback(keys) as second:
        target = replace(sshd, name="far", jump="second")
        known = {"second": replace(second, jump=f"{first.user}@{first.address}:{first.port}")}
        file = keys.folder / f"jump-{os.urandom(3).hex()}"
        file.write_text(f"IdentityFile {keys.user}\n" + keys.config.read_text())
        monkeypatch.setenv("DEPLOY_SSH_CONFIG", str(file))
        transport = connect(target, known)
        assert transport.run(["echo", "far away"]).stdout == b"far away\n"
        (keys.folder / "one").mkdir()
        (keys.folder / "one" / "file").write_text("pushed")
        goal = keys.folder / "pushed through"
        transport.push(keys.folder / "one", str(goal), progress=lambda *_: None, timeout=60)
        assert (goal / "file").read_text() == "pushed"
        transport.close()


def test_a_jump_host_that_cannot_reach_the_target_says_so(keys, sshd):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = replace(sshd, address="127.0.0.1", port=free.getsockname()[1], jump="door")
        with pytest.raises(Unreachable, match="the jump host could not connect to it"):
            connect(nobody, {"door": sshd})


def test_a_jump_host_that_is_down_is_named(keys: Keys, sshd):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        with pytest.raises(Unreachable, match=f"127.0.0.1:{port}: connection refused"):
            connect(replace(sshd, jump=f"127.0.0.1:{port}"))


@pytest.mark.parametrize("end", ["exec", "trap '' HUP;"])
def test_a_proxy_command_is_used_and_ends_with_the_connection(via_config, keys, sshd, tmp_path, end):
    inner = f"ssh -F {keys.config} -i {keys.user} -p {sshd.port} -W %h:%p {sshd.user}@{sshd.address}"
    script = tmp_path / "proxy"
    script.write_text(f'echo $$ >{tmp_path}/pid\n{end} ssh "$@"\nexec sleep 60\n')
    transport = connect(via_config(f"ProxyCommand {inner.replace('ssh', f'sh {script}', 1)}"))
    program = Path("/proc") / (tmp_path / "pid").read_text().strip()
    assert transport.run(["echo", "in"]).stdout == b"in\n" and program.exists()
    transport.close()
    deadline = time.monotonic() + PATIENCE
    while program.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_proxy_command_that_fails_is_shown(via_config):
    with pytest.raises(Unreachable) as caught:
        connect(via_config("ProxyCommand sh -c 'exit 3' %h"))
    assert "ProxyCommand: sh -c 'exit 3' 127." in caught.value.remedy
