"""`deploy status --watch`: hosts looked at again and again over connections that are kept, until Ctrl-C."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

import click

from deploy import inventory
from deploy.errors import DeployError
from deploy.inventory import LOCAL, Host
from deploy.operations import running
from deploy.options import Options
from deploy.project import home
from deploy.remote import Remote, reach
from deploy.render import Screen, live_terminal
from deploy.status import standing, telling
from deploy.status.drift import Drift
from deploy.status.standing import Standing
from deploy.status.telling import Row
from deploy.text import tables
from deploy.transport import Configuration

COLOURS = {
    "serving": "green",
    "following": "green",
    "loading": "yellow",
    "swapping": "yellow",
    "asking": "dim",
    "dead": "bold red",
    "unreachable": "bold red",
    "not answering": "bold red",
    "torn": "bold red",
}
NARROW = tuple(name for name in telling.COLUMNS if name not in ("run", "pid", "port"))
TROUBLE = ("dead", "unreachable", "not answering", "torn")
TOLD = ("deployment", "state", "run", "why", "drift", "hold")  # a change of these is worth a line


@dataclass
class Look:
    """The last look at one host."""

    standing: Standing | None = None
    error: DeployError | None = None
    at: float = field(default_factory=time.monotonic)


class Watch:
    """Looks at hosts side by side, each in a thread of its own, so that one that hangs holds up nobody."""

    def __init__(self, options: Options, every: float) -> None:
        found = inventory.load(home(options).inventory)
        self.hosts = running.hosts(options, found)
        self.wanted = running.only_profile(options)
        self.every = every
        self.looks: dict[str, Look] = {host.name: Look() for host in self.hosts}
        self.news = threading.Condition()
        self._bystander = LOCAL if not options.hosts and LOCAL not in found.hosts and len(self.hosts) > 1 else ""
        self._drift = Drift(home(options))
        self._stopped = threading.Event()
        self._look = standing.Look()
        self._said = Configuration()

    def __enter__(self) -> Self:
        for host in self.hosts:
            threading.Thread(target=self._keep_looking, args=(host,), name=f"host {host.name}", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()

    def _keep_looking(self, host: Host) -> None:
        remote: Remote | None = None
        while not self._stopped.is_set():
            look = Look()
            try:
                remote = remote or reach(host, lambda _: None, self._stopped, self._said)
                look.standing = self._look.at(remote)
            except DeployError as error:
                look.error = error
                if remote:
                    remote.transport.close()
                remote = None
            look.at = time.monotonic()
            with self.news:
                self.looks[host.name] = look
                self.news.notify_all()
            self._stopped.wait(self.every)
        if remote:
            remote.transport.close()

    def rows(self) -> list[Row]:
        """What is known now, in the inventory's order."""
        with self.news:
            looks = dict(self.looks)
        return [row for name, look in looks.items() if not self._twice(name, looks) for row in self._of(name, look)]

    def _twice(self, name: str, looks: Mapping[str, Look]) -> bool:
        """Whether it is this machine, which the inventory has under another name."""
        told = {whose: look.standing.machine for whose, look in looks.items() if look.standing}
        here = told.get(name) if name == self._bystander else None
        return here is not None and any(here.same(other) for whose, other in told.items() if whose != name)

    def _of(self, name: str, look: Look) -> Iterable[Row]:
        if look.error:
            return [{"host": name, "state": "unreachable", "why": look.error.what}]
        if look.standing is None:
            return [] if name == self._bystander else [{"host": name, "state": "asking"}]
        rows = list(telling.of_host(name, look.standing, self.wanted, self._drift))
        if name == self._bystander and not any(row.get("alive") for row in rows):
            return []
        silent = time.monotonic() - look.at
        if silent > 2 * self.every + standing.PATIENCE:
            rows = [{**row, "why": f"no answer for {silent:.0f} s"} for row in rows]
        return rows


def show(options: Options, every: float) -> int:
    """Until Ctrl-C: a table that moves on a terminal; else a line for each change, or a JSON line for each round."""
    screen = Screen(sys.stdout, sys.stderr, os.environ)
    with Watch(options, every) as watch, suppress(KeyboardInterrupt):
        if options.json:
            _documents(watch)
        elif live_terminal(screen, sys.stdout):
            _table(watch, screen)
        else:
            _lines(watch)
    return 0


def _table(watch: Watch, screen: Screen) -> None:
    from deploy.render._board import Board, Picture

    def picture(most: int) -> Picture:
        rows = watch.rows()
        if len(rows) > most:  # what is wrong must be seen
            rows = sorted(rows, key=lambda row: row["state"] not in TROUBLE)
        columns, cells = tables.cells([telling.shown(row) for row in rows[:most]], NARROW)
        left = f"{len(rows) - most} more rows, " if len(rows) > most else ""
        below = f"{left}{time.strftime('%H:%M:%S')}, every {watch.every:g} s, Ctrl-C ends"
        return Picture(
            columns, [(line, COLOURS.get(row["state"], "")) for line, row in zip(cells, rows, strict=False)], below
        )

    with Board(screen, picture):
        threading.Event().wait()


def _lines(watch: Watch) -> None:
    """Each row when it is new, and when it has changed in words; numbers that move are no news."""
    known: dict[tuple[str, Any], Any] = {}
    for rows in _rounds(watch):
        for row in map(telling.shown, rows):
            key, told = (row["host"], row.get("deployment")), [row.get(name) for name in TOLD]
            if row["state"] != "asking" and known.get(key) != told:
                known[key] = told
                columns, cells = tables.cells([row], telling.COLUMNS)
                words = "  ".join(f"{name} {cell}" for name, cell in zip(columns[1:], cells[0][1:], strict=True))
                click.echo(f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {row['host']}  {words}")


def _documents(watch: Watch) -> None:
    """A line for each round, once every host has told or failed to."""
    told = 0.0
    for rows in _rounds(watch):
        if all(row["state"] != "asking" for row in rows) and time.monotonic() - told >= watch.every:
            told = time.monotonic()
            click.echo(json.dumps({"at": time.time(), "rows": rows}))


def _rounds(watch: Watch) -> Iterator[list[Row]]:
    """The rows, each time that a host has told, or is late."""
    while True:
        yield watch.rows()
        with watch.news:
            watch.news.wait(watch.every)
