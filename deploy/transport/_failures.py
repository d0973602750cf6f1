"""What paramiko and the system say when a host cannot be reached, translated once: what, evidence, remedy."""

from __future__ import annotations

import errno
import shlex
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import paramiko
from paramiko.auth_strategy import AuthFailure
from paramiko.ssh_exception import IncompatiblePeer

from deploy.errors import Unreachable
from deploy.transport import _auth
from deploy.transport._hostkeys import Line, UnknownHostKey, changed, fingerprint, names, revoked
from deploy.transport.openssh import Route

FOREIGN = (paramiko.SSHException, OSError, EOFError)

CHANGED, REVOKED = "its host key has CHANGED", "it shows a key that is revoked"
BROKE = "the connection broke off while logging in"
SAID: tuple[tuple[Any, str, str], ...] = (  # an exception, or the system's number for it
    (socket.gaierror, "the name is not known", "check `address` in the inventory, or HostName in ~/.ssh/config"),
    (paramiko.ChannelException, "the jump host could not connect to it", "check address and port, as seen from there"),
    (IncompatiblePeer, "no algorithm in common", "allow one: Ciphers, MACs, KexAlgorithms, HostKeyAlgorithms"),
    (TimeoutError, "timed out", "is the host up, and does a firewall let this machine in?"),
    (ConnectionRefusedError, "connection refused", "is sshd running there, on this port?"),
    (errno.EHOSTUNREACH, "no route to the host", "check the address and the network"),
    (errno.ENETUNREACH, "no route to the host", "check the address and the network"),
    (PermissionError, "a file could not be read", "check the owner of the key"),
)


class Failure(Exception):
    """A host on the way could not be reached; the cause is what was raised."""

    def __init__(self, route: Route) -> None:
        super().__init__(route.name)
        self.route = route


def passing(failure: BaseException) -> bool:
    """Whether a second try may help: a busy sshd drops connections before its banner (MaxStartups)."""
    error = failure.__cause__ if isinstance(failure, Failure) else None
    if isinstance(error, paramiko.AuthenticationException | UnknownHostKey | paramiko.BadHostKeyException):
        return False
    if isinstance(error, paramiko.ChannelException | IncompatiblePeer | socket.gaierror):
        return False
    if isinstance(error, OSError):
        return isinstance(error, TimeoutError | ConnectionResetError | BrokenPipeError)
    return isinstance(error, paramiko.SSHException | EOFError)


def lost(name: str, why: str, during: str = "") -> Unreachable:
    """The connection was there, and is not any more; `during` says what went on meanwhile."""
    return Unreachable(f"{name}: the connection was lost{during}", evidence=why, remedy="run the command again")


def broken(transports: Iterable[tuple[str, paramiko.Transport | None]]) -> str:
    """Why a connection broke, from the first of the ways to the host, by name, that is not what it was; "" if all are.

    paramiko keeps what ended its thread in `saved_exception` (4.0 to 5.1, transport.py: run).
    """
    for name, transport in transports:
        error = transport.saved_exception if transport else None
        if error is not None:
            return f"the connection to {name}: {ended(error)}" if name else ended(error)
    return ""


def ended(error: Exception | None) -> str:
    """How a connection ended, by what was raised."""
    return "the other side closed it" if isinstance(error, EOFError) else _words(error) if error else ""


def no_session(name: str, error: Exception) -> Unreachable:
    """The host's sshd does not start another program over this connection."""
    remedy = "MaxSessions in its sshd_config must be 10 (sshd's default) or more"
    return Unreachable(f"{name}: its sshd starts no further program", evidence=_words(error), remedy=remedy)


def no_forwarding(name: str, error: Exception) -> Unreachable:
    """The host's sshd does not open ports for us."""
    return Unreachable(
        f"{name}: its sshd opens no connections to its ports",
        evidence=_words(error),
        remedy="set AllowTcpForwarding to yes or local, and PermitOpen to any, in its sshd_config",
    )


def explain(name: str, failure: Failure) -> Unreachable:
    """Why a host could not be reached, from what was raised while connecting."""
    route = failure.route
    what, evidence, remedy = _explain(name, route, failure.__cause__)
    through = f" through {route.via.name}" if route.via else ""
    where = f"{route.user}@{route.hostname}:{route.port}{through}"
    return Unreachable(f"{name}: {where}: {what}", evidence=evidence, remedy=remedy)


def _explain(name: str, route: Route, error: BaseException | None) -> tuple[str, str, str]:
    if isinstance(error, UnknownHostKey | paramiko.BadHostKeyException):
        return _distrusted(name, route, error.key)
    if isinstance(error, AuthFailure):
        remedy = f"name the right key in the inventory or in ~/.ssh/config, and try: ssh {route.user}@{route.hostname}"
        return "none of our keys was accepted", _auth.tried(error), remedy
    for kind, what, remedy in SAID:
        if getattr(error, "errno", None) == kind if isinstance(kind, int) else isinstance(error, kind):
            return what, _words(error), remedy
    if route.get("proxycommand"):
        return BROKE, _words(error), f"try its ProxyCommand: {route.expand(route.get('proxycommand'))}"
    return BROKE, _words(error), "sshd may be busy (MaxStartups), or something else listens on this port"


def _distrusted(name: str, route: Route, shown: paramiko.PKey) -> tuple[str, str, str]:
    """As `deploy hosts trust` judges, which is advised only where it would add the key."""
    if found := revoked(route, [shown]):
        return REVOKED, *declared(found)
    if stale := changed(route, [shown]):
        return CHANGED, *contradicted(route, [shown], stale)
    return "its host key is not known", fingerprint(shown), f"deploy hosts trust {name}"


def declared(found: Iterable[Line]) -> tuple[str, str]:
    """Evidence and remedy for a host that shows a key that known_hosts revokes."""
    remedy = "do not connect to it: its key was declared stolen or lost; ask who keeps that file"
    return "\n".join(f"revoked is {line}" for line in found), remedy


def contradicted(route: Route, shown: Iterable[paramiko.PKey], stale: list[Line]) -> tuple[str, str]:
    """Evidence and remedy for a host that shows other keys than those that known_hosts has."""
    evidence = [f"it shows {fingerprint(key)}" for key in shown]
    evidence += [f"known is {line}" for line in stale]
    forget = (f"ssh-keygen -R '{names(route)[0]}' -f {shlex.quote(str(file))}" for file in _files(stale))
    remedy = "somebody may be in between. If the host was set up anew, forget the old key: " + " && ".join(forget)
    return "\n".join(evidence), remedy


def _files(stale: list[Line]) -> list[Path]:
    return list(dict.fromkeys(line.file for line in stale))


def _words(error: BaseException | None) -> str:
    return str(error) or type(error).__name__
