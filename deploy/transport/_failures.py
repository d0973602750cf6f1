"""What paramiko and the system say when a host cannot be reached, translated once: what, evidence, remedy."""

from __future__ import annotations

import errno
import shlex
import socket
from typing import Any

import paramiko
from paramiko.auth_strategy import AuthFailure
from paramiko.ssh_exception import IncompatiblePeer

from deploy.errors import Unreachable
from deploy.transport import _auth
from deploy.transport._hostkeys import UnknownHostKey, fingerprint, names
from deploy.transport.openssh import Route

FOREIGN = (paramiko.SSHException, OSError, EOFError)

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


def lost(name: str, error: Exception) -> Unreachable:
    """The connection was there, and is not any more."""
    return Unreachable(f"{name}: the connection was lost", evidence=_words(error), remedy="run the command again")


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
    what, evidence, remedy = _explain(route, failure.__cause__)
    through = f" through {route.via.name}" if route.via else ""
    where = f"{route.user}@{route.hostname}:{route.port}{through}"
    return Unreachable(f"{name}: {where}: {what}", evidence=evidence, remedy=remedy)


def _explain(route: Route, error: BaseException | None) -> tuple[str, str, str]:
    if isinstance(error, UnknownHostKey):
        return _unknown(route, error)
    if isinstance(error, paramiko.BadHostKeyException):
        return _changed(route, error)
    if isinstance(error, AuthFailure):
        remedy = f"name the right key in the inventory or in ~/.ssh/config, and try: ssh {route.user}@{route.hostname}"
        return "none of our keys was accepted", _auth.tried(error), remedy
    for kind, what, remedy in SAID:
        if getattr(error, "errno", None) == kind if isinstance(kind, int) else isinstance(error, kind):
            return what, _words(error), remedy
    if route.get("proxycommand"):
        return BROKE, _words(error), f"try its ProxyCommand: {route.expand(route.get('proxycommand'))}"
    return BROKE, _words(error), "sshd may be busy (MaxStartups), or something else listens on this port"


def _unknown(route: Route, error: UnknownHostKey) -> tuple[str, str, str]:
    file = shlex.quote(str(route.known_hosts[0])) if route.known_hosts else "~/.ssh/known_hosts"
    remedy = (
        "compare it on the host itself (ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub), then add it:\n"
        f"echo '{error.line}' >> {file}"
    )
    return "its host key is not known", error.fingerprint, remedy


def _changed(route: Route, error: paramiko.BadHostKeyException) -> tuple[str, str, str]:
    evidence = f"it shows {fingerprint(error.key)}\nknown is {fingerprint(error.expected_key)}"
    remedy = (
        "somebody may be in between. If the host was set up anew, forget the old key: "
        f"ssh-keygen -R '{names(route)[0]}' -f {shlex.quote(str(route.known_hosts[0]))}"
    )
    return "its host key has CHANGED", evidence, remedy


def _words(error: BaseException | None) -> str:
    return str(error) or type(error).__name__
