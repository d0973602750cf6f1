"""Streamed chats that arrive at a fixed rate, whether or not those before them are answered: what users do."""

from __future__ import annotations

import selectors
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import Any

from deploy.host.load import outcome, raw_request
from deploy.host.load_client import Connection, Exchange

PATIENCE = 120.0  # seconds for an answer
LOOK = 0.05  # seconds between looks at whether it shall end


@dataclass
class Load:
    """What was asked so far; whoever was asked is waited for at the end."""

    port: int
    bodies: Sequence[dict[str, Any]]
    rate: float  # arrivals a second
    exchanges: list[Exchange] = field(default_factory=list)
    late: float = 0.0  # seconds by which the latest arrival came after its time: it shall be next to nothing
    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Ask until it is over, each on a connection of its own."""
        busy: list[Connection] = []
        with selectors.DefaultSelector() as selector:
            began = time.perf_counter()
            numbers = count()
            number = next(numbers)
            while busy or not self.over.is_set():
                due, now = began + number / self.rate, time.perf_counter()
                if now >= due and not self.over.is_set():
                    self.late = max(self.late, now - due)
                    busy.append(self._arrives(selector, number))
                    number = next(numbers)
                    continue
                for key, mask in selector.select(min(LOOK, max(0.0, due - now))):
                    key.data.ready(mask)
                for connection in busy:
                    connection.late(time.perf_counter())
                    if connection.exchange is None:
                        connection.close()
                busy = [connection for connection in busy if connection.exchange is not None]

    def _arrives(self, selector: selectors.BaseSelector, number: int) -> Connection:
        request = {"path": "/v1/chat/completions", "body": self.bodies[number % len(self.bodies)]}
        self.exchanges.append(Exchange(raw_request(request, "")))
        connection = Connection(selector, self.port, PATIENCE)
        connection.ask(self.exchanges[-1])
        return connection

    def told(self) -> Told:
        """What came of it; once it is over."""
        answers = [outcome(exchange, [], exchange.began) for exchange in self.exchanges]
        whole = [one for one in answers if not one["error"]]
        times = [[at for at, _, _ in one["chunks"]] for one in whole]
        return Told(
            asked=len(answers),
            failed=[one["error"] for one in answers if one["error"]],
            first=[one[0] for one in times if one],
            between=[after - before for one in times for before, after in pairwise(one)],
            late=self.late,
        )


@dataclass(frozen=True)
class Told:
    """How many were asked, why some failed, seconds to a first token, and between two (chunks of) tokens."""

    asked: int
    failed: list[str]
    first: list[float]
    between: list[float]
    late: float

    def line(self) -> str:
        longest = f"longest time to a first token {_most(self.first)}, between two {_most(self.between)}"
        return (
            f"{len(self.failed)} of {self.asked} requests failed; {longest}; arrivals late by {self.late:.3f} s at most"
        )


def _most(seconds: Sequence[float]) -> str:
    return f"{max(seconds):.2f} s" if seconds else "none"


@contextmanager
def loaded(port: int, prompts: Sequence[str], rate: float, *, tokens: int = 12) -> Iterator[Load]:
    """So many short greedy chats a second meanwhile."""
    told = {"model": "tiny", "max_tokens": tokens, "temperature": 0, "stream": True}
    bodies = [{**told, "messages": [{"role": "user", "content": prompt}]} for prompt in prompts]
    load = Load(port, bodies, rate)
    thread = threading.Thread(target=load.run)
    thread.start()
    try:
        yield load
    finally:
        load.over.set()
        thread.join()
