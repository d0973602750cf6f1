"""Which host keys are right: known_hosts as OpenSSH reads it. Paramiko knows neither patterns nor @revoked."""

from __future__ import annotations

import base64
import fnmatch
import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import paramiko

from deploy.transport.openssh import Route

PATTERN = re.compile(r"[|*?]")  # a name that is not written out


class UnknownHostKey(paramiko.SSHException):
    """A host showed a key that no known_hosts file holds."""

    def __init__(self, name: str, key: paramiko.PKey) -> None:
        super().__init__(f"unknown host key of {name}")
        self.key = key


class Refuse(paramiko.MissingHostKeyPolicy):
    """Unknown host keys are refused (Fabric would add them silently)."""

    def __init__(self, name: str) -> None:
        self._name = name

    def missing_host_key(self, _client: paramiko.SSHClient, _hostname: str, key: paramiko.PKey) -> None:
        """Refuse."""
        raise UnknownHostKey(self._name, key)


def fingerprint(key: paramiko.PKey) -> str:
    """As `ssh-keygen -l` prints it."""
    return f"{key.get_name()} {sha256(key.asbytes())}"


def names(route: Route) -> list[str]:
    """The names under which the host's keys may stand, the right one first; OpenSSH also looks without the port."""
    alias = route.get("hostkeyalias")
    if alias:
        return [alias]
    host = route.hostname.lower()
    return [host] if route.port == 22 else [f"[{host}]:{route.port}", host]


@dataclass(frozen=True)
class Line:
    """A line of a known_hosts file: the names that it is for, and the key as bytes."""

    file: Path
    number: int
    marker: str
    hosts: str
    kind: str
    blob: bytes

    def __str__(self) -> str:
        return f"{self.kind} {sha256(self.blob)}, {self.file} line {self.number}"


def lines(route: Route, *names: str) -> list[Line]:
    """All that known_hosts says of a host under these names; as for OpenSSH, without lines that cannot be read."""
    read = [line for file in route.known_hosts if file.is_file() for line in _lines(file, names)]
    return [line for line in read if any(_matches(line.hosts, name) for name in names) and _key(line)]


def known(route: Route) -> list[paramiko.PKey]:
    """The keys that are right for a host; those marked @revoked are not."""
    for name in names(route):
        matching = lines(route, name)
        revoked = {line.blob for line in matching if line.marker == "@revoked"}
        keys = [_key(line) for line in matching if not line.marker and line.blob not in revoked]
        found = [key for key in keys if key]
        if found:
            return found
    return []


def revoked(route: Route, shown: Iterable[paramiko.PKey]) -> list[Line]:
    """The lines by which a key that a host shows now was declared stolen or lost."""
    blobs = {key.asbytes() for key in shown}
    return [line for line in lines(route, *names(route)) if line.marker == "@revoked" and line.blob in blobs]


def changed(route: Route, shown: Iterable[paramiko.PKey]) -> list[Line]:
    """The lines that a host contradicts by the keys that it shows now: another one of their kind, or none of any kind.

    What is known under its name without the port is another host's then, as for OpenSSH.
    """
    own = [line for line in lines(route, names(route)[0]) if not line.marker]
    blobs = {key.get_name(): key.asbytes() for key in shown}
    right = {line.kind for line in own if line.blob == blobs.get(line.kind)}
    wrong = [line for line in own if line.kind in blobs and line.kind not in right]
    return wrong or ([] if right else own)


def _lines(file: Path, names: tuple[str, ...]) -> Iterator[Line]:
    """Those that may be for one of the names: a fleet's file has a line for each of its hosts, and is read for each."""
    for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").split("\n"), 1):
        if not (PATTERN.search(line) or any(name in line.lower() for name in names)):
            continue
        words = line.split()
        marker = words.pop(0) if words and words[0].startswith("@") else ""
        if len(words) < 3 or words[0].startswith("#"):
            continue
        try:
            yield Line(file, number, marker, words[0], words[1], base64.b64decode(words[2], validate=True))
        except ValueError:
            continue


def _matches(hosts: str, name: str) -> bool:
    if hosts.startswith("|"):
        return hosts == _hashed(hosts, name)
    patterns = hosts.lower().split(",")
    if any(_like(name, pattern[1:]) for pattern in patterns if pattern.startswith("!")):
        return False
    return any(_like(name, pattern) for pattern in patterns)


def _hashed(hosts: str, name: str) -> str:
    """The name hashed with the salt of |1|SALT|HASH; "" where there is none."""
    _, _, salt, *_ = [*hosts.split("|"), ""]
    try:
        digest = hmac.new(base64.b64decode(salt, validate=True), name.encode(), hashlib.sha1).digest()
    except ValueError:
        return ""
    return f"|1|{salt}|{base64.b64encode(digest).decode()}"


def _like(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(name, pattern.replace("[", "[[]"))  # brackets are part of `[host]:port`


def _key(line: Line) -> paramiko.PKey | None:
    try:
        key = paramiko.PKey.from_type_string(line.kind, line.blob)
    except (paramiko.SSHException, paramiko.pkey.UnknownKeyType, ValueError, OverflowError):
        return None  # of a kind that paramiko does not know, so it can not be shown to us either; or torn
    # paramiko reads zeros behind the end of what is torn, and takes a curve for another one
    return key if (key.get_name(), key.asbytes()) == (line.kind, line.blob) else None


def sha256(blob: bytes) -> str:
    """A key's fingerprint."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
