"""Who answers on a port of a host, and in what environment a run's processes really live."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from deploy import host
from deploy.facts import processes, sockets
from deploy.facts.processes import Process, Processes
from deploy.facts.sockets import Listener

V4, V6 = "0.0.0.0", "::"  # noqa: S104 - looked for, not bound
LOOPBACK = {"127.0.0.1", "::ffff:127.0.0.1"}  # where the tool itself asks


class AsksWithInput(Protocol):
    """As much of a host as this needs: run a Python program that reads its stdin."""

    def python(self, source: str, *args: str, timeout: float = 30.0, stdin: bytes = b"") -> Any:
        """The JSON that it printed, parsed."""


@dataclass(frozen=True)
class Question:
    """What is asked: about which run and port, which variables its processes should have, which paths it should name.

    `env` has null where only the presence of a variable counts; the values of `hidden` ones never leave the host.
    `paths` are pairs: a path that was wished, and the one that the server tells (None: it tells none, so its command
    line is looked at).
    """

    run: str
    port: int
    env: Mapping[str, str | None]
    hidden: Sequence[str]
    paths: Sequence[tuple[str, str | None]]


@dataclass(frozen=True)
class Environment:
    """A process's own environment: wiped, or what of it differs from what was asked for (None: it is missing)."""

    wiped: bool
    differs: Mapping[str, str | None]


@dataclass(frozen=True)
class Identity:
    """One look at a host: all processes, who listens on the port, and the environments of those that matter."""

    living: Processes
    listeners: tuple[Listener, ...]  # those on the port, whatever their address
    launcher: Process | None  # the one that launch.sh wrote down, if it lives
    environments: Mapping[int, Environment]  # of the port's owners and the run's processes, where they may be read
    paths: tuple[bool, ...]  # whether each pair leads to the same place

    @property
    def answering(self) -> tuple[Listener, ...]:
        """Those of the listeners that a connection to 127.0.0.1 can reach: the most exact address wins."""
        for addresses in (LOOPBACK, {V4}, {V6}):
            if found := tuple(one for one in self.listeners if one.address in addresses):
                return found
        return ()


def parse(answer: Mapping[str, Any], port: int) -> Identity:
    """From what `deploy.host.identity` prints."""
    living = processes.parse(answer)
    told = [*map(str, answer["launcher"]), "", "", ""][:3]
    same_boot = told[2] == living.boot_id and told[0].isdecimal() and told[1].isdecimal()
    return Identity(
        living=living,
        listeners=sockets.on(port, sockets.parse(answer["sockets"])),
        launcher=living.get(int(told[0]), int(told[1])) if same_boot else None,
        environments={int(pid): Environment(**found) for pid, found in answer["environments"].items()},
        paths=tuple(answer["paths"]),
    )


def read(remote: AsksWithInput, question: Question) -> Identity:
    """Look once."""
    asked = {
        "run": question.run,
        "port": question.port,
        "env": dict(question.env),
        "hidden": list(question.hidden),
        "paths": [list(pair) for pair in question.paths],
    }
    return parse(remote.python(host.source("identity"), stdin=json.dumps(asked).encode()), question.port)
