"""The bytes below SSH: a socket of our own to the host, or to the program that ProxyCommand names."""

from __future__ import annotations

import socket
import subprocess

from deploy.transport.openssh import Route

CONNECT = 10  # seconds, where ConnectTimeout says nothing
FAMILIES = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}


def connect(route: Route) -> socket.socket:
    """A connected socket. OSError as the system says it."""
    command = route.get("proxycommand")
    if command:
        return _program(route.expand(command))
    family = FAMILIES.get(route.get("addressfamily"), socket.AF_UNSPEC)
    bind = route.get("bindaddress")
    error: OSError | None = None
    for kind, _, _, _, address in socket.getaddrinfo(route.hostname, route.port, family, socket.SOCK_STREAM):
        own = socket.socket(kind, socket.SOCK_STREAM)
        try:
            own.settimeout(route.number("connecttimeout", CONNECT))
            if bind:
                own.bind((bind, 0))
            own.connect(address)
        except OSError as failed:
            own.close()
            error = failed
        else:
            # Paramiko does not set it, and each command then waits 40 ms for a delayed acknowledgement.
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return own
    raise error or OSError(f"no address for {route.hostname}")


def _program(command: str) -> socket.socket:
    """One end of a pair of sockets; the program holds the other as stdin and stdout, and ends when ours is closed."""
    ours, its = socket.socketpair()
    with its:
        # The middle shell is gone at once, so no child of ours is left to be waited for. It gives the program its
        # stdin as 3, since what a shell starts in the background has /dev/null as 0.
        words = ["sh", "-c", 'exec 3<&0; (exec sh -c "exec $1" <&3 3<&-) & :', "sh", command]
        subprocess.run(words, stdin=its.fileno(), stdout=its.fileno(), check=True, start_new_session=True)
    return ours
