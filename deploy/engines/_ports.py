"""The TCP ports that a server takes, as its command line and its environment say them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from packaging.version import InvalidVersion, Version

FLAG = re.compile(r"--([A-Za-z0-9][\w.-]*)(?:=(.*))?", re.DOTALL)
ON = ("1", "true", "yes", "y", "t")  # what SGLang's and vLLM's own variables take for yes


@dataclass(frozen=True)
class Port:
    """One port, and what the server does with it."""

    number: int
    what: str


@dataclass(frozen=True)
class Said:
    """What one node's server was told: its flags by full name, its environment, its place among the nodes.

    `version` is the one installed, where that is known.
    """

    flags: Mapping[str, tuple[str, ...]]
    env: Mapping[str, str] = field(default_factory=dict)
    port: int = 0
    rank: int = 0
    nodes: int = 1
    version: str | None = None

    def __contains__(self, flag: str) -> bool:
        return flag in self.flags

    def word(self, flag: str, default: str = "") -> str:
        """A flag's one value."""
        return next(iter(self.flags.get(flag, ())), default)

    def number(self, flag: str, default: int | None = None) -> int | None:
        """A flag's value where it is a number."""
        return number(self.word(flag), default)

    def document(self, flag: str) -> Mapping[str, Any]:
        """A flag's value where it is a JSON object; empty where it is none."""
        try:
            found = json.loads(self.word(flag, "null"))
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def on(self, variable: str) -> bool:
        """Whether a variable says yes."""
        return self.env.get(variable, "").lower() in ON

    def since(self, version: str) -> bool:
        """Whether the installed version is that one or a later one; one not known is taken for a new one."""
        try:
            return self.version is None or Version(self.version) >= Version(version)
        except InvalidVersion:
            return True


def number(text: str, default: int | None = None) -> int | None:
    """A port or a count in words."""
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else default


def of_address(text: str) -> int | None:
    """The port of host:port, [address]:port or tcp://host:port."""
    return number(text.rpartition(":")[2])


def flags(argv: Iterable[object], aliases: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """{flag's full name: its values} of a command line; of one that stands twice, the last, as argparse takes it."""
    found: dict[str, tuple[str, ...]] = {}
    last = ""
    for word in map(str, argv):
        if match := FLAG.fullmatch(word):
            name, dot, key = match[1].partition(".")
            plain = f"{name.replace('_', '-')}{dot}{key}"
            last = aliases.get(plain, plain)
            found[last] = () if match[2] is None else (match[2],)
        elif last:
            found[last] = (*found[last], word)
    return found


def listed(pairs: Iterable[tuple[int | None, str]]) -> tuple[Port, ...]:
    """Those that are there and are ports, each once, under the first of its names."""
    found: dict[int, Port] = {}
    for number_, what in pairs:
        if number_ and number_ <= 65535:
            found.setdefault(number_, Port(number_, what))
    return tuple(found.values())


def spans(ports: Iterable[Port]) -> str:
    """In words: "ports 30000, 30233-30239"."""
    found: list[list[int]] = []
    for one in sorted(port.number for port in ports):
        if found and one == found[-1][-1] + 1:
            found[-1].append(one)
        else:
            found.append([one])
    words = ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in found) or "none"
    return f"port{'' if len(found) == 1 and len(found[0]) == 1 else 's'} {words}"


def zmq_events(said: Said, ranks: int) -> Iterator[tuple[int | None, str]]:
    """The publishers of --kv-events-config, which SGLang (disaggregation/kv_events.py, 0.5.8) and vLLM
    (config/kv_events.py, 0.33) share: bound where the address is a wildcard, a port on for each data parallel rank.
    """
    told = said.document("kv-events-config")
    if told.get("publisher", "zmq" if told.get("enable_kv_cache_events") else "null") != "zmq":
        return
    for endpoint in (told.get("endpoint", "tcp://*:5557"), told.get("replay_endpoint")):
        first = of_address(str(endpoint)) if "*" in str(endpoint) or "::" in str(endpoint) else None
        yield from ((first + rank, "KV events") for rank in range(ranks) if first)


def http(said: Said) -> Sequence[tuple[int | None, str]]:
    """The port that the server answers on."""
    return ((said.port, "HTTP"),)
