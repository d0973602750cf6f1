"""The hosts that tests run on are hosts of their own, and nothing of them outlives whoever made them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deploy.transport import connect
from tests.fleet import run
from tests.project import PATIENCE

LISTEN = "import socket; s = socket.create_server(('127.0.0.1', 4040)); print(1, flush=True); s.accept()"
MAKER = """
import sys, time
from pathlib import Path
from tests import fleet
keys = fleet.Keys(Path(sys.argv[1]))
with fleet.loopback(keys) as host, fleet.namespaced(keys, 2) as hosts:
    print(hosts[0].address, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def pair(fleet):
    transports = [connect(host) for host in fleet(2)]
    yield transports
    for transport in transports:
        transport.close()


def test_each_host_has_its_own_identity_home_and_folders(pair):
    one, two = pair
    script = (
        "cat /etc/machine-id /etc/hostname; hostname; readlink /proc/self/ns/net /proc/self/ns/pid /proc/self/ns/mnt"
    )
    for mine, other in zip(*(there.run(["sh", "-c", script]).stdout.split() for there in pair), strict=True):
        assert mine != other
    for folder in ("/tmp", "/run", "/dev/shm", "/var/tmp", "/home/op"):
        one.run(["sh", "-c", 'echo mine >"$1/mark"', "sh", folder])
        assert two.run(["ls", f"{folder}/mark"]).status != 0
        assert not Path(folder, "mark").exists()
        one.run(["rm", f"{folder}/mark"])
    assert one.run(["ls", "-A"]).stdout == b""


def test_hosts_reach_each_other_but_not_each_other_s_loopback(fleet, pair):
    first, second = fleet(2)
    one, two = pair
    process = one.spawn(["python3", "-c", LISTEN], deadline=30)
    process.read(timeout=PATIENCE)
    with pytest.raises(ConnectionRefusedError):
        two.dial(4040)
    two.dial(22, host=first.address).close()
    one.dial(4040).close()
    process.close()
    assert "sshd" in second.inside("ps", "ax")


def test_nothing_is_left_when_the_maker_is_killed(keys, tmp_path):
    (tmp_path / "keys").mkdir()
    words = [sys.executable, "-c", MAKER, str(tmp_path / "keys")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as maker:
        assert maker.stdout
        route = json.loads(run("ip", "-j", "route", "get", maker.stdout.readline().decode().strip()))
        cable = Path("/sys/class/net") / route[0]["dev"]
        mine = {int(pid) for pid in _descendants(maker.pid)}
        assert len(mine) >= 6 and cable.exists()
        maker.kill()
    deadline = time.monotonic() + PATIENCE
    while left := [pid for pid in mine if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
    while cable.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert str(tmp_path) not in Path("/proc/mounts").read_text()


def _descendants(pid: int) -> list[str]:
    children = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False).stdout.split()
    return [*children, *(deeper for child in children for deeper in _descendants(int(child)))]
