"""Real hosts for tests, on this machine: an sshd on loopback, and hosts in namespaces of their own.

Each ends with whoever started it, also by kill -9: every root process has a parent-death signal, and all that the
kernel keeps (networks, mounts, processes) hangs on those processes alone.
"""

from __future__ import annotations

import contextlib
import getpass
import ipaddress
import json
import secrets
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

SSHD = "/usr/sbin/sshd"
ROOT = Path(__file__).resolve().parent.parent
ONE_HOST = Path(__file__).with_name("one_host.sh")
NEEDS = ("setpriv", "unshare", "nsenter", "ip", "tc", "rsync", "ssh", "ssh-keygen")
DIES_WITH_US = ["setpriv", "--pdeathsig", "KILL", "--"]
SETTINGS = (
    "StrictModes no",
    "UsePAM no",
    "PermitRootLogin prohibit-password",
    "PasswordAuthentication no",
    "KbdInteractiveAuthentication no",
    "MaxStartups 200:30:400",
    "PidFile none",
)


@dataclass(frozen=True)
class TestHost:
    """A host as an inventory describes it, and the process that holds it up."""

    __test__ = False

    name: str
    address: str
    key: str
    port: int | None = None
    user: str | None = field(default_factory=getpass.getuser)
    jump: str | None = None
    transport: str = "ssh"
    pid: int = field(default=0, compare=False)
    switch: int = field(default=0, compare=False)

    def inside(self, *argv: str) -> str:
        """Run a program inside the host, past SSH; its stdout."""
        return run("nsenter", "--target", str(self.pid), "--all", "--wd=/", "--", *argv)

    def cut(self) -> None:
        """Pull its network cable: nothing comes through, and nothing says so."""
        run(*_in_network(self.switch), "ip", "link", "set", self.name, "down")

    def mend(self) -> None:
        """Put the cable back."""
        run(*_in_network(self.switch), "ip", "link", "set", self.name, "up")

    @contextlib.contextmanager
    def slowed(self, rate: str) -> Iterator[None]:
        """Let nothing faster than `rate` into it, say 40mbit."""
        change = [*_in_network(self.switch), "tc", "qdisc"]
        run(*change, "add", "dev", self.name, "root", "tbf", "rate", rate, "burst", "64kb", "latency", "400ms")
        try:
            yield
        finally:
            run(*change, "del", "dev", self.name, "root")


def missing() -> str:
    """Why no host can be made here, or nothing."""
    if not Path(SSHD).exists():
        return "sshd is missing: install openssh-server"
    return ", ".join(f"{name} is missing" for name in NEEDS if not shutil.which(name))


class Keys:
    """The user's key, the known_hosts file and the ssh config that a set of hosts is reached with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.user = self.make("id")
        self.known_hosts = folder / "known_hosts"
        self.known_hosts.touch()
        self.config = folder / "ssh_config"
        self.config.write_text(
            f"Host *\n UserKnownHostsFile {self.known_hosts}\n GlobalKnownHostsFile /dev/null\n"
            " IdentityFile none\n IdentitiesOnly yes\n"
        )

    def make(self, name: str, kind: str = "ed25519") -> Path:
        """A new key pair in the folder."""
        file = self.folder / name
        run("ssh-keygen", "-q", "-t", kind, "-N", "", "-C", name, "-f", str(file))
        return file

    def know(self, host_key: Path, address: str, port: int = 22) -> None:
        """Put a host's key into known_hosts."""
        name = address if port == 22 else f"[{address}]:{port}"
        kind, blob, *_ = host_key.with_name(f"{host_key.name}.pub").read_text().split()
        with self.known_hosts.open("a") as file:
            file.write(f"{name} {kind} {blob}\n")


@contextlib.contextmanager
def loopback(keys: Keys, *settings: str, shell: str = "", bashrc: str = "", port: int = 0) -> Iterator[TestHost]:
    """An sshd on an address of loopback, on a port that is free there; `settings` are lines for its configuration.

    It shares files, processes and ports with this machine. Logins have an empty HOME but for `bashrc`, and the user's
    login shell, or (as root) another `shell`.
    """
    folder = keys.folder / f"loopback-{secrets.token_hex(3)}"
    folder.mkdir()
    (folder / ".bashrc").write_text(bashrc)
    host_key = keys.make(f"{folder.name}/host_key")
    address = f"127.0.{secrets.randbelow(254) + 1}.{secrets.randbelow(254) + 1}"
    port = port or _free_port(address)
    lines = [*settings, f"ListenAddress {address}:{port}", f"HostKey {host_key}", f"SetEnv HOME={folder}"]
    config = folder / "sshd_config"
    config.write_text("\n".join([*lines, f"AuthorizedKeysFile {keys.user}.pub", *SETTINGS, ""]))
    with contextlib.suppress(PermissionError):
        Path("/run/sshd").mkdir(exist_ok=True)
    # sshd starts itself anew for each connection, from /: every path must be absolute
    argv = [*_with_shell(folder, shell), SSHD, "-D", "-e", "-f", str(config)]
    with _process(argv, folder / "log") as sshd:
        _await_port(address, port, folder / "log")
        keys.know(host_key, address, port)
        yield TestHost("loopback", address, str(keys.user), port, pid=sshd)


@contextlib.contextmanager
def namespaced(keys: Keys, count: int) -> Iterator[list[TestHost]]:
    """`count` hosts, each with its own network, processes, name and writable root over this machine's files.

    Their login shell is dash, HOME is empty. They reach each other and us, and nothing else. /srv/shared is one folder
    of them all.
    """
    network = _free_network()
    *addresses, own = network.hosts()
    folder = keys.folder / f"fleet-{secrets.token_hex(3)}"
    (folder / "shared").mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        switch = stack.enter_context(_switch(folder, f"{own}/{network.prefixlen}"))
        for number, address in zip(range(1, count + 1), addresses, strict=False):
            stack.enter_context(_one_host(keys, folder / f"host{number}", f"{address}/{network.prefixlen}", switch))
        hosts = [
            _described(keys, folder / f"host{number + 1}", str(addresses[number]), switch) for number in range(count)
        ]
        for host in hosts:
            _await_port(host.address, 22, folder / host.name / "log")
        yield hosts


@contextlib.contextmanager
def _switch(folder: Path, own: str) -> Iterator[int]:
    """A network namespace with a bridge in it and a cable to us. All of it goes when its one process goes."""
    script = "ip link add bridge0 type bridge && ip link set bridge0 up && exec sleep infinity"
    with _process(["unshare", "--net", "--fork", "--kill-child", "sh", "-c", script], folder / "switch.log") as unshare:
        pid = _child(unshare)
        _until(lambda: bool(_output(*_in_network(pid), "ip", "link", "show", "bridge0")), "a bridge")
        ours = f"d{secrets.token_hex(4)}"
        run("ip", "link", "add", ours, "type", "veth", "peer", "name", "uplink", "netns", str(pid))
        run("ip", "address", "add", own, "dev", ours)
        run("ip", "link", "set", ours, "up")
        run(*_in_network(pid), "ip", "link", "set", "dev", "uplink", "master", "bridge0", "up")
        yield pid


@contextlib.contextmanager
def _one_host(keys: Keys, folder: Path, address: str, switch: int) -> Iterator[None]:
    """A host of that address; its folder holds what it starts from."""
    (folder / "root").mkdir(parents=True)
    host_key = keys.make(f"{folder.parent.name}/{folder.name}/host_key")
    keys.know(host_key, address.partition("/")[0])
    shutil.copy(f"{keys.user}.pub", folder / "id.pub")
    (folder / "machine-id").write_text(uuid.uuid4().hex + "\n")
    lines = ["Port 22", "HostKey /etc/ssh/host_key", "AuthorizedKeysFile /etc/ssh/id.pub", *SETTINGS, ""]
    (folder / "sshd_config").write_text("\n".join(lines))
    own = [
        "unshare",
        "--net",
        "--mount",
        "--uts",
        "--ipc",
        "--pid",
        "--fork",
        "--kill-child",
        "--propagation",
        "private",
    ]
    with _process([*own, "sh", str(ONE_HOST), str(folder), folder.name, address, str(ROOT)], folder / "log") as unshare:
        (folder / "pid").write_text(str(_child(unshare)))
        peer = ["type", "veth", "peer", "name", "eth0", "netns", (folder / "pid").read_text()]
        run(*_in_network(switch), "ip", "link", "add", folder.name, *peer)
        run(*_in_network(switch), "ip", "link", "set", folder.name, "master", "bridge0", "up")
        yield


def _described(keys: Keys, folder: Path, address: str, switch: int) -> TestHost:
    pid = int((folder / "pid").read_text())
    return TestHost(folder.name, address, str(keys.user), pid=pid, switch=switch)


@contextlib.contextmanager
def _process(argv: list[str], log: Path) -> Iterator[int]:
    """A process that ends at the end of the `with`, or when we die; its pid."""
    with log.open("wb") as out:
        process = subprocess.Popen([*DIES_WITH_US, *argv], stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def _child(pid: int) -> int:
    """The one child of a process, once it has one."""
    find = ("ps", "-o", "pid=", "--ppid", str(pid))
    _until(lambda: bool(_output(*find)), f"a child of process {pid}")
    return int(_output(*find))


def _in_network(pid: int) -> list[str]:
    return ["nsenter", "--target", str(pid), "--net", "--"]


def _with_shell(folder: Path, shell: str) -> list[str]:
    """Words before a program that sees another login shell in /etc/passwd."""
    if not shell:
        return []
    passwd = folder / "passwd"
    users = [line.rpartition(":") for line in Path("/etc/passwd").read_text().splitlines()]
    mine = f"{getpass.getuser()}:"
    passwd.write_text("".join(f"{user}:{shell if user.startswith(mine) else its}\n" for user, _, its in users))
    script = 'mount --bind "$0" /etc/passwd && exec "$@"'
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, str(passwd)]


def _free_port(address: str) -> int:
    with socket.socket() as free:
        free.bind((address, 0))
        return int(free.getsockname()[1])


def _free_network() -> ipaddress.IPv4Network:
    """A /24 that no address here lies in, so that two test runs may stand side by side."""
    here = [address["local"] for link in json.loads(run("ip", "-j", "-4", "address")) for address in link["addr_info"]]
    while True:
        network = ipaddress.IPv4Network(f"10.{secrets.randbelow(64) + 64}.{secrets.randbelow(256)}.0/24")
        if not any(ipaddress.IPv4Address(address) in network for address in here):
            return network


def _await_port(address: str, port: int, log: Path) -> None:
    def answers() -> bool:
        with contextlib.suppress(OSError), socket.create_connection((address, port), 5.0) as stream:
            return stream.recv(4) == b"SSH-"
        return False

    try:
        _until(answers, f"sshd on {address}:{port}")
    except TimeoutError as error:
        raise TimeoutError(f"{error}: {log.read_text(errors='replace')[-1500:]}") from None


def _until(true: Callable[[], bool], what: str, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come within {seconds:g} s")
        time.sleep(0.02)


def _output(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout


def run(*argv: str) -> str:
    """Run a program; its stdout. AssertionError with its last words when it fails."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"{argv}: {done.stderr}"
    return done.stdout
