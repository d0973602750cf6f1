"""A paramiko connection on which nothing follows a channel's CLOSE, and whose end has the words of who ended it."""

from __future__ import annotations

import threading
from typing import Any

import paramiko
from paramiko.common import cMSG_CHANNEL_CLOSE


class Orderly(paramiko.Transport):
    """As paramiko's, but for two things (as of paramiko 5.1).

    A channel's messages are made under its lock and sent without it, so that the EOF or the data of one thread may
    follow the CLOSE of another, which answers the end of a program. sshd ends the whole connection then ("packet
    referred to nonexistent channel"), or takes them for those of the next program, which has the same number there.

    Why the other side ended the connection is only logged, and who asks for the reason is told that there is none.
    """

    def open_channel(self, *args: Any, **more: Any) -> paramiko.Channel:
        channel = super().open_channel(*args, **more)
        gate: Any = _Gate(self)
        channel.transport = gate
        if channel.closed:  # meanwhile, past the gate
            gate.shut = True
        return channel

    def _parse_disconnect(self, message: paramiko.Message) -> None:
        """What is raised here is kept as the connection's end. While logging in, paramiko has words of its own."""
        if not self.is_authenticated():
            super()._parse_disconnect(message)  # type: ignore[misc]
            return
        message.get_int()
        raise paramiko.SSHException(f"the other side ended it: {message.get_text()}")


class _Gate:
    """A transport for one channel: sends one message after another, and none after its CLOSE."""

    def __init__(self, transport: paramiko.Transport) -> None:
        self._transport = transport
        self._sending = threading.Lock()
        self.shut = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def _send_user_message(self, message: paramiko.Message) -> None:
        with self._sending:
            closes = message.asbytes()[:1] == cMSG_CHANNEL_CLOSE
            if closes or not self.shut:
                self._transport._send_user_message(message)  # type: ignore[attr-defined]  # noqa: SLF001
            self.shut = self.shut or closes
