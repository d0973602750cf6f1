"""Logging in: Fabric connects, through jump hosts where there are some, and trusts only what known_hosts says."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ParamSpec, TypeVar

import paramiko
import tenacity
from fabric import Config, Connection

from deploy.errors import ConfigError
from deploy.transport import _failures
from deploy.transport._auth import Keys
from deploy.transport._hostkeys import Refuse, known, names
from deploy.transport._orderly import Orderly
from deploy.transport._socket import CONNECT, connect
from deploy.transport.openssh import Route

P = ParamSpec("P")
T = TypeVar("T")

PATIENCE = 30.0  # seconds for each step of logging in, and for a channel to open
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

# every use of paramiko begins here; it logs refused ports, tracebacks and peers' words to stderr, through the live view
logging.getLogger("paramiko").addHandler(logging.NullHandler())


def login(name: str, route: Route) -> Connection:
    """Connect, and try again when a busy host drops us. Unreachable."""
    return patiently(name, route, _open, route)


def patiently(name: str, route: Route, act: Callable[P, T], *args: P.args, **more: P.kwargs) -> T:
    """What raises Failure, tried again when a busy host drops us. Unreachable."""
    attempts = tenacity.Retrying(
        retry=tenacity.retry_if_exception(_failures.passing),
        stop=tenacity.stop_after_attempt(max(3, route.number("connectionattempts", 1))) | tenacity.stop_after_delay(25),
        wait=tenacity.wait_random_exponential(multiplier=0.2, max=5.0),
        reraise=True,
    )
    try:
        return attempts(act, *args, **more)
    except _failures.Failure as failure:
        raise _failures.explain(name, failure) from failure.__cause__


def _open(route: Route) -> Connection:
    """Connect, after the jump hosts before it. Failure."""
    gateway = _open(route.via) if route.via else None
    try:
        return _through(route, gateway)
    except BaseException as error:
        if gateway:
            leave(gateway)
        if isinstance(error, _failures.FOREIGN):
            raise _failures.Failure(route) from error
        raise


def _through(route: Route, gateway: Connection | None) -> Connection:
    right, keys = known(route), Keys(route)
    connection = Connection(
        route.hostname,
        user=route.user,
        port=route.port,
        gateway=gateway,
        config=Config(lazy=True, ssh_config=paramiko.SSHConfig()),
        connect_timeout=route.number("connecttimeout", CONNECT),
        connect_kwargs=_settings(route, keys, right),
    )
    try:
        if not gateway:
            connection.connect_kwargs["sock"] = connect(route)
        _trust(connection.client, route, right)
        connection.open()
    except BaseException:
        # Fabric's own close does nothing before the connection is up
        connection.client.close()
        if "sock" in connection.connect_kwargs:
            connection.connect_kwargs["sock"].close()
        raise
    finally:
        keys.close()
    return connection


def leave(connection: Connection) -> None:
    """End a connection, and those to its jump hosts."""
    connection.close()
    if isinstance(connection.gateway, Connection):
        leave(connection.gateway)


def ways(connection: Connection) -> list[tuple[str, paramiko.Transport | None]]:
    """The connections to the jump hosts, by name, the nearest first, and last its own, without a name."""
    gateway = connection.gateway if isinstance(connection.gateway, Connection) else None
    jumps = [(way or gateway.host, transport) for way, transport in ways(gateway)] if gateway else []
    return [*jumps, ("", connection.transport)]


def _settings(route: Route, keys: Keys, right: Sequence[paramiko.PKey]) -> dict[str, Any]:
    return {
        "auth_strategy": keys,
        "banner_timeout": PATIENCE,
        "auth_timeout": PATIENCE,
        "channel_timeout": PATIENCE,
        "compress": route.get("compression") == "yes",
        "disabled_algorithms": {"pubkeys": _unwanted(route)},
        "transport_factory": partial(negotiated, route, right),
    }


def _trust(client: paramiko.SSHClient, route: Route, right: Sequence[paramiko.PKey]) -> None:
    """Only keys from known_hosts; others are refused with their fingerprint."""
    client.set_missing_host_key_policy(Refuse(names(route)[0]))
    for key in right:
        client.get_host_keys().add(_asked(route), key.get_name(), key)


def _asked(route: Route) -> str:
    """The name under which paramiko looks a host's key up."""
    return route.hostname if route.port == 22 else f"[{route.hostname}]:{route.port}"


def negotiated(
    route: Route, right: Sequence[paramiko.PKey], sock: Any, disabled_algorithms: Any = None
) -> paramiko.Transport:
    """A transport that offers what OpenSSH's configuration allows, and prefers the host keys that we know."""
    transport = Orderly(sock, disabled_algorithms=disabled_algorithms)
    offered = transport.get_security_options()
    for option, attribute in ALGORITHMS.items():
        chosen = route.chosen(option)
        if chosen:
            setattr(offered, attribute, _common(route, option, chosen, getattr(offered, attribute)))
    first = [name for key in right for name in SIGNATURES.get(key.get_name(), [key.get_name()])]
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
