"""A port of this machine that leads to a server on a host, through the connection that the tool has to it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from deploy.errors import Unreachable
from deploy.remote import Remote
from deploy.transport import Stream

PIECE = 65536


def serve(listener: socket.socket, port: int, remote: Remote, refused: Callable[[str], None]) -> None:
    """Accept connections until the listener is closed; each is joined to the host's `port`."""
    while True:
        try:
            near, _ = listener.accept()
        except OSError:  # closed by whoever ends the tunnel
            return
        threading.Thread(target=_join, args=(near, port, remote, refused), name="tunnel", daemon=True).start()


def _join(near: socket.socket, port: int, remote: Remote, refused: Callable[[str], None]) -> None:
    with near:
        try:
            far = remote.transport.dial(port)
        except (ConnectionError, TimeoutError, Unreachable) as error:
            refused(f"{remote.host.name}: port {port}: {error or type(error).__name__}")
            return
        far.settimeout(None)  # a long answer begins late
        back = threading.Thread(target=_carry, args=(far, near), name="tunnel back", daemon=True)
        back.start()
        _carry(near, far)
        back.join()
        far.close()


def _carry(source: Stream | socket.socket, target: Stream | socket.socket) -> None:
    """Everything from one side to the other; then the other is told that no more comes, and may still answer."""
    with suppress(OSError, Unreachable):
        while data := source.recv(PIECE):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
