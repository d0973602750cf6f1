"""Folders go to hosts by rsync: they resume, and when they cannot, the error says why."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.errors import DeployError, RemoteFailed, TimedOut, Unreachable
from deploy.transport import Transport, connect
from tests.fleet import TestHost, loopback

SIZE = 24 << 20


@pytest.fixture
def host(fleet) -> TestHost:
    found: TestHost = fleet(1)[0]
    return found


@pytest.fixture
def there(host) -> Iterator[Transport]:
    transport = connect(host)
    yield transport
    transport.close()


@pytest.fixture
def source(tmp_path) -> Path:
    folder: Path = tmp_path / "release"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(os.urandom(SIZE))
    return folder


def push(there: Transport, source: Path, target: str, timeout: float = 60.0) -> list[int]:
    seen: list[int] = []
    there.push(source, target, progress=lambda done, _total: seen.append(done), timeout=timeout)
    return seen


def received(host: TestHost) -> int:
    return int(host.inside("cat", "/sys/class/net/eth0/statistics/rx_bytes"))


def test_a_push_that_broke_off_goes_on_where_it_was(host, there, source):
    target = f"/tmp/resumed-{os.urandom(3).hex()}"
    with host.slowed("60mbit"), pytest.raises(TimedOut, match="what is there is kept"):
        push(there, source, target, timeout=2.0)
    assert there.run(["ls", target]).stdout == b""  # nothing that looks whole
    before = received(host)
    push(there, source, target)
    assert received(host) - before < SIZE * 0.9
    whole = hashlib.sha256((source / "model.safetensors").read_bytes()).hexdigest()
    assert there.run(["sha256sum", f"{target}/model.safetensors"]).stdout.decode().split()[0] == whole
    assert there.run(["ls", "-A", target]).stdout == b"model.safetensors\n"


def test_progress_is_told_while_it_goes(host, there, source):
    with host.slowed("100mbit"):
        seen = push(there, source, f"/tmp/progress-{os.urandom(3).hex()}")
    assert seen == sorted(seen) and seen[0] == 0 and seen[-1] == SIZE
    assert any(0 < done < SIZE for done in seen)


def test_a_full_disk_says_so(there, source):
    there.run(["sh", "-c", "mkdir -p /tmp/small && mount -t tmpfs -o size=4m tmpfs /tmp/small"])
    try:
        with pytest.raises(RemoteFailed, match="disk is full") as caught:
            push(there, source, "/tmp/small/target")
        assert "No space left" in caught.value.evidence and caught.value.remedy
    finally:
        there.run(["umount", "/tmp/small"])


def test_a_read_only_disk_says_so(there, source):
    there.run(["sh", "-c", "mkdir -p /tmp/fixed && mount -t tmpfs -o ro tmpfs /tmp/fixed"])
    try:
        with pytest.raises(RemoteFailed, match="read-only"):
            push(there, source, "/tmp/fixed/target")
    finally:
        there.run(["umount", "/tmp/fixed"])


def test_a_folder_of_somebody_else_says_so(host, there, source):
    there.run(["useradd", "-m", "-p", "*", "-s", "/bin/sh", "other"])
    there.run(["mkdir", "-p", "/tmp/mine"])
    other = connect(replace(host, user="other"))
    try:
        with pytest.raises(RemoteFailed, match="not permitted"):
            push(other, source, "/tmp/mine")
        with pytest.raises(RemoteFailed, match="not permitted"):
            push(other, source, "/tmp/mine/deeper")
    finally:
        other.close()
        there.run(["userdel", "-rf", "other"])


def test_no_rsync_on_the_host_names_the_host_and_the_package(host, there, source):
    there.run(["mv", "/usr/bin/rsync", "/usr/bin/rsync.away"])
    try:
        with pytest.raises(RemoteFailed, match=f"{host.name}: rsync is missing on the host") as caught:
            push(there, source, "/tmp/target")
        assert "package rsync" in caught.value.remedy
    finally:
        there.run(["mv", "/usr/bin/rsync.away", "/usr/bin/rsync"])


def test_no_rsync_here_says_so(there, source, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(DeployError, match="rsync is missing on this machine") as caught:
        push(there, source, "/tmp/target")
    assert "package rsync" in caught.value.remedy


def test_a_login_shell_that_prints_says_so(keys, source, tmp_path):
    with loopback(keys, shell="/bin/bash", bashrc="echo Welcome\n") as noisy:
        there = connect(noisy)
        with pytest.raises(RemoteFailed, match="its login shell prints something") as caught:
            push(there, source, str(tmp_path / "target"))
        assert "ssh HOST true" in caught.value.remedy
        there.close()


def test_a_host_that_vanishes_during_a_push_is_unreachable(host, source, keys, tmp_path, monkeypatch):
    quick = "Host *\n ServerAliveInterval 1\n ServerAliveCountMax 2\n ConnectTimeout 2"
    (tmp_path / "config").write_text(keys.config.read_text().replace("Host *", quick))
    monkeypatch.setenv("DEPLOY_SSH_CONFIG", str(tmp_path / "config"))
    there = connect(host)
    try:
        with host.slowed("40mbit"), pytest.raises(Unreachable):
            there.push(source, "/tmp/vanished", progress=lambda done, _: host.cut() if done else None, timeout=40)
    finally:
        host.mend()
        there.close()
