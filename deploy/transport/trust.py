"""Host keys that are not known yet: what a host shows, what known_hosts says of it, and how it is written there."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import paramiko
from fabric import Connection
from paramiko.hostkeys import HostKeys
from paramiko.ssh_exception import IncompatiblePeer

from deploy.errors import DeployError
from deploy.transport import Reachable, _failures, _hostkeys
from deploy.transport._failures import CHANGED, REVOKED
from deploy.transport._login import PATIENCE, leave, login, negotiated, patiently
from deploy.transport._socket import connect
from deploy.transport.openssh import Route, resolve

KINDS = (  # one after the other is asked for: a host shows one key at a time
    ("ssh-ed25519",),
    ("ecdsa-sha2-nistp256",),
    ("ecdsa-sha2-nistp384",),
    ("ecdsa-sha2-nistp521",),
    ("rsa-sha2-512", "rsa-sha2-256"),
)
AT_ONCE = 16  # hosts that are asked side by side

__all__ = ["CHANGED", "REVOKED", "Shown", "Stop", "Verdict", "add", "judged", "look", "way"]

Verdict = Literal["known", "unknown", "changed", "revoked"]


@dataclass(frozen=True)
class Stop:
    """A host on the way to another one, or that one itself."""

    name: str  # as the inventory calls it, or ssh where it is not in there
    route: Route

    @property
    def identity(self) -> tuple[Any, ...]:
        """Equal for the same host by the same way under the same name."""
        way: list[Any] = [_hostkeys.names(self.route)[0]]
        at: Route | None = self.route
        while at:
            way += [at.hostname, at.port, at.user]
            at = at.via
        return tuple(way)

    @property
    def where(self) -> str:
        """How it is reached."""
        through = f" through {self.route.via.name}" if self.route.via else ""
        return f"{self.route.hostname}:{self.route.port}{through}"


@dataclass(frozen=True)
class Shown:
    """The keys that a host showed, and what is true of them; for one that is not to be trusted, why, and what to do."""

    stop: Stop
    verdict: Verdict
    keys: tuple[paramiko.PKey, ...]
    evidence: str = ""
    remedy: str = ""

    @property
    def fingerprints(self) -> list[tuple[str, str]]:
        """(kind, SHA256:...) of each key, as `ssh-keygen -l` prints it."""
        return [(key.get_name(), _hostkeys.sha256(key.asbytes())) for key in self.keys]


def way(host: Reachable, known: Mapping[str, Reachable]) -> list[Stop]:
    """The stops on the way to a host of the inventory, the outermost first. ConfigError as when connecting."""
    stops: list[Stop] = []
    route: Route | None = resolve(host, known)
    at: Reachable | None = host
    while route:
        stops.insert(0, Stop(at.name if at else route.name, route))
        at = known.get(at.jump) if at and at.jump else None
        route = route.via
    return stops


def look(wanted: Sequence[Stop]) -> list[Shown | DeployError]:
    """What hosts show, side by side; those on the way to them must be trusted already."""
    with ExitStack() as stack, ThreadPoolExecutor(AT_ONCE) as pool:
        gates: dict[tuple[Any, ...], Connection | DeployError] = {}
        through = {Stop("", stop.route.via).identity: stop for stop in wanted if stop.route.via}
        for key, gate in zip(through, pool.map(_gate, through.values()), strict=True):
            gates[key] = gate
            if isinstance(gate, Connection):
                stack.callback(leave, gate)
        ways = [gates[Stop("", stop.route.via).identity] if stop.route.via else None for stop in wanted]
        return list(pool.map(_look, wanted, ways))


def _gate(stop: Stop) -> Connection | DeployError:
    """One connection to a jump host, for all that are behind it."""
    assert stop.route.via  # noqa: S101 - only those that have one are asked
    try:
        return login(stop.name, stop.route.via)
    except DeployError as error:
        return error


def _look(stop: Stop, gate: Connection | DeployError | None) -> Shown | DeployError:
    if isinstance(gate, DeployError):
        return gate
    try:
        first = judged(stop, tuple(_ask(stop, gate, ())))  # a kind that is known before all others
        if first.verdict == "known":
            return first
        return judged(stop, tuple(key for kinds in KINDS for key in _ask(stop, gate, kinds)) or first.keys)
    except DeployError as error:
        return error


def _ask(stop: Stop, gate: Connection | None, kinds: tuple[str, ...]) -> Iterator[paramiko.PKey]:
    """The host's key of these kinds, if it has one; of any kind, where none is named."""
    key = patiently(stop.name, stop.route, _shown, stop.route, gate, kinds)
    if key:
        yield key


def _shown(route: Route, gate: Connection | None, kinds: tuple[str, ...]) -> paramiko.PKey | None:
    """Exchange keys and nothing more; the host proves that the key is its own. None where it has none. Failure."""
    try:
        with (
            closing(_socket(route, gate)) as sock,
            closing(negotiated(route, _hostkeys.known(route), sock)) as transport,
        ):
            security = transport.get_security_options()
            wanted = [kind for kind in security.key_types if kind in kinds] if kinds else security.key_types
            if not wanted:  # ssh's configuration rules them out
                return None
            security.key_types = tuple(wanted)
            transport.start_client(timeout=PATIENCE)
            return transport.get_remote_server_key()
    except _failures.FOREIGN as error:
        if kinds and isinstance(error, IncompatiblePeer):
            return None
        raise _failures.Failure(route) from error


def _socket(route: Route, gate: Connection | None) -> Any:
    if gate is None:
        return connect(route)
    return gate.transport.open_channel("direct-tcpip", (route.hostname, route.port), ("127.0.0.1", 0), timeout=PATIENCE)


def judged(stop: Stop, keys: tuple[paramiko.PKey, ...]) -> Shown:
    """What known_hosts says of the keys that a host shows. A changed or a revoked one is never to be added."""
    route, blobs = stop.route, {key.asbytes() for key in keys}
    if found := _hostkeys.revoked(route, keys):
        return Shown(stop, "revoked", keys, *_failures.declared(found))
    if stale := _hostkeys.changed(route, keys):
        return Shown(stop, "changed", keys, *_failures.contradicted(route, keys, stale))
    right = blobs & {key.asbytes() for key in _hostkeys.known(route)}
    return Shown(stop, "known" if right else "unknown", keys)


def add(shown: Shown) -> Path:
    """Append a host's keys to the user's known_hosts, as OpenSSH would. DeployError where that cannot be."""
    route = shown.stop.route
    files = route.own_known_hosts
    name = _hostkeys.names(route)[0]
    hosts = HostKeys.hash_host(name) if route.get("hashknownhosts") == "yes" else name
    lines = "".join(f"{hosts} {key.get_name()} {key.get_base64()}\n" for key in shown.keys)
    if not files:
        raise DeployError(
            f"{shown.stop.name}: ssh's configuration names no known_hosts file of yours",
            evidence=lines,
            remedy="set UserKnownHostsFile",
        )
    try:
        _append(files[0], lines.encode())
    except OSError as error:
        raise DeployError(
            f"{files[0]} cannot be written: {error.strerror}", evidence=lines, remedy="add these lines to it yourself"
        ) from error
    if judged(shown.stop, shown.keys).verdict != "known":
        raise DeployError(f"{shown.stop.name}: what was written to {files[0]} is not found there", evidence=lines)
    return files[0]


def _append(file: Path, lines: bytes) -> None:
    """In one write at the end: what is there stays as it is, and so does what an ssh adds at the same time."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(fd).st_size
        torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
        text = b"\n" * torn + lines
        if os.write(fd, text) < len(text):
            os.ftruncate(fd, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(fd)
    finally:
        os.close(fd)
