"""A host over SSH: Fabric connects, everything that runs there is a channel of that one connection."""

from __future__ import annotations

import logging
import shlex
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import paramiko
import tenacity
from fabric import Config, Connection

from deploy.errors import ConfigError, Unreachable
from deploy.transport import Reachable, _failures, rsync
from deploy.transport._auth import Keys
from deploy.transport._calls import Calls
from deploy.transport._channel import ChannelStreams, Tunnelled
from deploy.transport._hostkeys import Refuse, known, names
from deploy.transport._process import Running
from deploy.transport._pulse import Pulse
from deploy.transport._socket import CONNECT, connect
from deploy.transport._wrapper import LONGEST, wrap
from deploy.transport.openssh import Route, resolve

PROGRAMS = 8  # at once on a connection; sshd's MaxSessions is 10
PATIENCE = 30.0  # seconds for each step of logging in, and for a channel to open
REFUSED = 2  # why a channel was not opened (RFC 4254, 5.1)
ALGORITHMS = {"ciphers": "ciphers", "macs": "digests", "kexalgorithms": "kex", "hostkeyalgorithms": "key_types"}
SIGNED = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
)
SIGNATURES = {"ssh-rsa": ["rsa-sha2-512", "rsa-sha2-256"]}

# paramiko logs each refused port to stderr, through the live view
logging.getLogger("paramiko").addHandler(logging.NullHandler())


class SshTransport(Calls):
    """A `Transport` over one SSH connection."""

    def __init__(self, name: str, route: Route) -> None:
        self.name = name
        self._route = route
        self._connection = _connect(name, route)
        self._transport = self._connection.transport
        self._slots = threading.BoundedSemaphore(PROGRAMS)
        self._pulse = Pulse(self._transport, route.keepalive, route.number("serveralivecountmax", 3))

    def _start(self, argv: Sequence[str], deadline: float, keep: int | None) -> Running:
        words, mark = wrap(argv, deadline)
        command = f"exec {shlex.join(words)}".encode("utf-8", "surrogateescape")
        if len(command) > LONGEST:
            raise ValueError(f"{argv[0]}: {len(command)} bytes of words are too many; send them through stdin")
        if not self._slots.acquire(timeout=deadline + PATIENCE):
            raise Unreachable(f"{self.name}: {PROGRAMS} programs run there already over this connection")
        try:
            channel = self._open(command)
        except BaseException:
            self._slots.release()
            raise
        running = Running(self.name, ChannelStreams(channel, self._terminate), mark, keep=keep)
        running.start(self._slots.release)
        return running

    def _open(self, command: bytes) -> paramiko.Channel:
        try:
            channel: paramiko.Channel = self._transport.open_session(timeout=PATIENCE)
            channel.settimeout(PATIENCE)
            for setting in self._route.options.get("setenv", []):
                channel.set_environment_variable(*setting.split("=", 1))
            channel.exec_command(command)
            channel.settimeout(None)
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise _failures.lost(self.name, error) from error
        return channel

    def _terminate(self, group: int) -> None:
        with suppress(Unreachable):  # then its own deadline ends it
            self.run(["kill", "-s", "TERM", str(group)], timeout=5.0)

    def dial(self, port: int, *, host: str = "127.0.0.1", timeout: float = 5.0) -> Tunnelled:
        """Connect to a port as seen from the host. builtin ConnectionRefusedError when nobody listens."""
        try:
            channel = self._transport.open_channel("direct-tcpip", (host, port), ("127.0.0.1", 0), timeout=timeout)
        except paramiko.ChannelException as error:
            if error.code == REFUSED:
                raise ConnectionRefusedError(f"nobody listens on {host}:{port} of {self.name}") from error
            raise _failures.no_forwarding(self.name, error) from error
        except (paramiko.SSHException, OSError, EOFError) as error:
            if self._transport.is_active():
                raise TimeoutError(f"{host}:{port} of {self.name} did not answer in {timeout:g} s") from error
            raise _failures.lost(self.name, error) from error
        channel.settimeout(timeout)
        return Tunnelled(channel)

    def push(self, source: Path, target: str, *, progress: Callable[[int, int], None], timeout: float) -> None:
        """Copy the folder's files into the folder `target` by rsync; resumes. Errors as in `rsync.push`."""
        rsync.push(self, self._route, source, target, progress=progress, timeout=timeout)

    def fetch(self, source: str, target: Path, *, timeout: float) -> None:
        """Copy a folder's files, or one file, into the local folder `target` by rsync."""
        rsync.fetch(self, self._route, source, target, timeout=timeout)

    def fresh(self) -> SshTransport:
        """A second connection to the same host."""
        return SshTransport(self.name, self._route)

    def close(self) -> None:
        """End the connection, and those to its jump hosts."""
        self._pulse.stop()
        _close(self._connection)


def reach(host: Reachable, known: Mapping[str, Reachable]) -> SshTransport:
    """Connect to a host of the inventory. Unreachable, or ConfigError where OpenSSH's configuration is not usable."""
    return SshTransport(host.name, resolve(host, known))


def _connect(name: str, route: Route) -> Connection:
    """Connect, and try again when a busy host drops us. Unreachable."""
    attempts = tenacity.Retrying(
        retry=tenacity.retry_if_exception(_failures.passing),
        stop=tenacity.stop_after_attempt(max(3, route.number("connectionattempts", 1))) | tenacity.stop_after_delay(25),
        wait=tenacity.wait_random_exponential(multiplier=0.2, max=5.0),
        reraise=True,
    )
    try:
        return attempts(_open, route)
    except _failures.Failure as failure:
        raise _failures.explain(name, failure) from failure.__cause__


def _open(route: Route) -> Connection:
    """Connect, after the jump hosts before it. Failure."""
    gateway = _open(route.via) if route.via else None
    try:
        return _login(route, gateway)
    except _failures.FOREIGN as error:
        raise _failures.Failure(route) from error


def _login(route: Route, gateway: Connection | None) -> Connection:
    keys = Keys(route)
    connection = Connection(
        route.hostname,
        user=route.user,
        port=route.port,
        gateway=gateway,
        config=Config(lazy=True, ssh_config=paramiko.SSHConfig()),
        connect_timeout=route.number("connecttimeout", CONNECT),
        connect_kwargs=_settings(route, keys),
    )
    try:
        if not gateway:
            connection.connect_kwargs["sock"] = connect(route)
        _trust(connection.client, route)
        connection.open()
    except BaseException:
        # Fabric's own close does nothing before the connection is up
        connection.client.close()
        if "sock" in connection.connect_kwargs:
            connection.connect_kwargs["sock"].close()
        _close(connection)
        raise
    finally:
        keys.close()
    return connection


def _close(connection: Connection) -> None:
    connection.close()
    if isinstance(connection.gateway, Connection):
        _close(connection.gateway)


def _settings(route: Route, keys: Keys) -> dict[str, Any]:
    return {
        "auth_strategy": keys,
        "banner_timeout": PATIENCE,
        "auth_timeout": PATIENCE,
        "channel_timeout": PATIENCE,
        "compress": route.get("compression") == "yes",
        "disabled_algorithms": {"pubkeys": _unwanted(route)},
        "transport_factory": partial(_transport, route),
    }


def _trust(client: paramiko.SSHClient, route: Route) -> None:
    """Only keys from known_hosts; others are refused with their fingerprint."""
    client.set_missing_host_key_policy(Refuse(names(route)[0]))
    for key in known(route):
        client.get_host_keys().add(_asked(route), key.get_name(), key)


def _asked(route: Route) -> str:
    """The name under which paramiko looks a host's key up."""
    return route.hostname if route.port == 22 else f"[{route.hostname}]:{route.port}"


def _transport(route: Route, sock: Any, disabled_algorithms: Any = None) -> paramiko.Transport:
    """A transport that offers what OpenSSH's configuration allows, and prefers the host keys that we know."""
    transport = paramiko.Transport(sock, disabled_algorithms=disabled_algorithms)
    offered = transport.get_security_options()
    for option, attribute in ALGORITHMS.items():
        chosen = route.chosen(option)
        if chosen:
            setattr(offered, attribute, _common(route, option, chosen, getattr(offered, attribute)))
    first = [name for key in known(route) for name in SIGNATURES.get(key.get_name(), [key.get_name()])]
    offered.key_types = sorted(offered.key_types, key=lambda name: name not in first)
    return transport


def _unwanted(route: Route) -> list[str]:
    """The signatures that PubkeyAcceptedAlgorithms does not name."""
    accepted = route.chosen("pubkeyacceptedalgorithms")
    return [name for name in SIGNED if name not in accepted] if accepted else []


def _common(route: Route, option: str, chosen: list[str], possible: Sequence[str]) -> list[str]:
    common = [name for name in chosen if name in possible]
    if not common:
        raise ConfigError(
            f"{route.name}: OpenSSH's configuration allows no {option} that is known here",
            evidence=",".join(chosen),
            remedy=f"allow one of {','.join(possible)}",
        )
    return common
