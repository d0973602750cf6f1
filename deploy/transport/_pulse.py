"""Notice that a host is gone though nothing says so: paramiko's keep-alive asks, but does not wait for the answer."""

from __future__ import annotations

import threading

import paramiko

# An answer is waited for in parts: the clock goes on while we are frozen or the laptop sleeps, and what came
# meanwhile is read only afterwards.
PARTS = 4


class Pulse:
    """Asks for a sign of life every `interval` seconds, and closes the transport when none comes in `count` of them.

    `silence` says so then, in words.
    """

    def __init__(self, transport: paramiko.Transport, interval: float, count: int) -> None:
        self._transport = transport
        self._interval = interval
        self._longest = interval * count
        self._stopped = threading.Event()
        self.silence = ""
        threading.Thread(target=self._beat, name="keep-alive", daemon=True).start()

    def stop(self) -> None:
        """No more."""
        self._stopped.set()

    def _beat(self) -> None:
        while not self._stopped.wait(self._interval) and self._transport.is_active():
            asked = threading.Thread(target=self._ask, name="keep-alive request", daemon=True)
            asked.start()
            for _ in range(PARTS):
                asked.join(self._longest / PARTS)
            if asked.is_alive():
                self.silence = f"no answer to our keep-alive for {self._longest:g} s"
                self._transport.close()  # every channel ends, and with it every read that waits
                return

    def _ask(self) -> None:
        try:
            self._transport.global_request("keepalive@openssh.com", wait=True)
        except (OSError, EOFError, paramiko.SSHException):
            self._transport.close()
