"""How many bytes a second go from one host to another over TCP: throughput.py receive|send ...

    receive ADDRESS SECONDS                         prints {"port", "token"} at once, {"bytes", "seconds"} at the end
    send FROM ADDRESS PORT TOKEN SECONDS STREAMS    prints {"bytes", "error": ""}

Only who says the token first is listened to. The receiver listens at ADDRESS alone, and for SECONDS at the longest,
also when nobody comes; its stdin closed ends it at once. FROM is the sender's own address, "" for any.
Runs on the host: Python >= 3.8, standard library only.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
import threading
import time
from typing import Any

CHUNK = 1 << 20  # bytes
CONNECT = 5.0  # seconds


def tell(document: dict[str, Any]) -> None:
    print(json.dumps(document), flush=True)


class Receiver:
    """Counts what arrives on all connections of one sender."""

    def __init__(self, address: str) -> None:
        family, *_, where = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0]
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        self.socket.bind(where)
        self.socket.listen(64)
        self.token = secrets.token_hex(16)
        self.count, self.first, self.last = 0, 0.0, 0.0
        self._lock = threading.Lock()

    def receive(self, until: float) -> None:
        """Until the sender has closed all of its connections."""
        threads: list[threading.Thread] = []
        while time.monotonic() < until:
            self.socket.settimeout(0.2 if threads else max(until - time.monotonic(), 0.01))
            try:
                connection, _ = self.socket.accept()
            except OSError:  # nobody came meanwhile
                if threads and not any(thread.is_alive() for thread in threads) and self.count:
                    return
                continue
            threads.append(threading.Thread(target=self._drain, args=(connection, until), daemon=True))
            threads[-1].start()

    def _drain(self, connection: socket.socket, until: float) -> None:
        try:
            connection.settimeout(max(until - time.monotonic(), 0.01))
            said = b""
            while len(said) < len(self.token):
                more = connection.recv(len(self.token) - len(said))
                if not more:
                    return
                said += more
            if not secrets.compare_digest(said, self.token.encode()):
                return
            buffer = bytearray(CHUNK)
            while time.monotonic() < until:
                count = connection.recv_into(buffer)
                if not count:
                    return
                self._add(count)
        except OSError:  # it broke off: what came has been counted
            return
        finally:
            connection.close()

    def _add(self, count: int) -> None:
        with self._lock:
            self.last = time.monotonic()
            self.first = self.first or self.last
            self.count += count


def receive(address: str, seconds: str) -> None:
    receiver = Receiver(address)
    threading.Thread(target=end_with_stdin, daemon=True).start()
    tell({"port": receiver.socket.getsockname()[1], "token": receiver.token})
    receiver.receive(time.monotonic() + float(seconds))
    tell({"bytes": receiver.count, "seconds": receiver.last - receiver.first})
    os._exit(0)


def end_with_stdin() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


def send(*words: str) -> None:
    own, address, port, token, seconds, streams = words
    counts, errors = [0] * int(streams), [""] * int(streams)
    began = threading.Barrier(int(streams))

    def one(number: int) -> None:
        try:
            source = (own, 0) if own else None
            connection = socket.create_connection((address, int(port)), CONNECT, source_address=source)
        except OSError as error:
            errors[number] = str(error)
            began.abort()
            return
        chunk = bytes(CHUNK)
        with connection:
            try:
                began.wait(CONNECT * 2)
                connection.settimeout(CONNECT)
                connection.sendall(token.encode())
                until = time.monotonic() + float(seconds)
                while time.monotonic() < until:
                    counts[number] += connection.send(chunk)
            except threading.BrokenBarrierError:
                errors[number] = errors[number] or "another connection was not made"
            except OSError as error:
                errors[number] = str(error)

    threads = [threading.Thread(target=one, args=(number,), daemon=True) for number in range(int(streams))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(CONNECT * 4 + float(seconds))
    told = [error for error in errors if error and "another" not in error] or [error for error in errors if error]
    tell({"bytes": sum(counts), "error": told[0] if told else ""})


if __name__ == "__main__":
    if sys.argv[1] == "receive":
        receive(*sys.argv[2:])
    else:
        send(*sys.argv[2:])
