"""The bytes below SSH: a socket of our own to the host, or to the program that ProxyCommand names."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from contextlib import suppress

from deploy.transport import _apart
from deploy.transport.openssh import Route

CONNECT = 10  # seconds, where ConnectTimeout says nothing
FAMILIES = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}


def connect(route: Route) -> socket.socket:
    """A connected socket. OSError as the system says it."""
    command = route.get("proxycommand")
    if command:
        return Program(route.expand(command))
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


class Program(socket.socket):
    """A socket to a program's stdin and stdout; closing it ends the program, as OpenSSH does, by SIGHUP."""

    def __init__(self, command: str) -> None:
        ours, its = socket.socketpair()
        super().__init__(fileno=ours.detach())
        words = ["sh", "-c", f"exec {command}"]
        with its:
            self._process = _apart.start(words, stdin=its.fileno(), stdout=its.fileno(), stderr=subprocess.DEVNULL)

    def close(self) -> None:
        """Close it, and see the program gone."""
        super().close()
        for number in (signal.SIGHUP, signal.SIGKILL):
            if self._process.poll() is None:
                with suppress(ProcessLookupError, subprocess.TimeoutExpired):  # paramiko closes it too
                    os.killpg(self._process.pid, number)
                    self._process.wait(2.0)
