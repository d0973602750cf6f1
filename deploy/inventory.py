"""The hosts there are, how each is reached, and what each of them has of its own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from deploy.config import documents, patterns, schema, validation
from deploy.config.schema import Part
from deploy.config.values import HostFile, HostFolder, Label, Name, Text, Word
from deploy.errors import ConfigError

Setting = Text | list[Any] | dict[str, Text | list[Any] | None] | None  # text is read as on the command line

LOCAL = "localhost"
JUMP = re.compile(r"(?:(?P<user>[^@\s]+)@)?(?P<host>\[[0-9A-Fa-f:.%]+\]|[^:@\s\[\]]+)(?::(?P<port>\d{1,5}))?")


class Host(Part):
    """One machine: how it is reached and what it has."""

    made: ClassVar[frozenset[str]] = frozenset({"name", "via"})

    name: Label = Field(description="Its name in this inventory.")
    address: Word = Field(description="What is connected to, or a name of ~/.ssh/config. Default: its own name.")
    user: Word | None = Field(default=None, description="The user; ssh's own if not said.")
    port: Annotated[int, Field(ge=1, le=65535)] | None = Field(
        default=None, description="sshd's port; ssh's own if not said."
    )
    key: Word | None = Field(default=None, description="The private key's file; ssh's own and the agent's if not said.")
    jump: Word | None = Field(
        default=None, description="The way to it: another host of this inventory, or user@host:port."
    )
    transport: Literal["ssh", "local"] = Field(default="ssh", description="local: this machine, without ssh.")
    gpus: Annotated[int, Field(ge=0)] = Field(default=0, description="How many GPUs it has.")
    work: HostFolder = Field(default="~/.deploy", description="The folder on it for everything the tool keeps there.")
    lock: HostFile = Field(
        default="/tmp/deploy.lock",
        description="The lock's file; one path for all users of the machine, on a disk of its own.",
    )
    lease: Annotated[float, Field(gt=0)] = Field(
        default=30.0, description="Seconds after which the lock of a client that is not heard any more is free."
    )
    sudo: bool = Field(
        default=False, description="Whether `sudo` must work there without a password, for hooks say: it is checked."
    )
    env: dict[Name, Text] = Field(default_factory=dict, description="Environment of every server on it.")
    set: dict[str, Setting] = Field(
        default_factory=dict, description="Keys of the profile that are different on it: {nccl.SOCKET_IFNAME: eth1}."
    )

    via: Host | None = Field(default=None, description="The jump as a host; made by the inventory, never written.")

    @model_validator(mode="before")
    @classmethod
    def _address(cls, value: Any) -> Any:
        return {"address": value.get("name"), **value} if isinstance(value, dict) else value

    def __hash__(self) -> int:
        return hash(self.name)


class Inventory(Part):
    """All hosts, in the order in which they are written, and groups of them."""

    hosts: dict[Label, Host] = Field(description="The hosts by name.")
    groups: dict[Label, list[Word]] = Field(
        default_factory=dict, description="Names for several of them: hosts, patterns, other groups."
    )

    @model_validator(mode="before")
    @classmethod
    def _names(cls, value: Any) -> Any:
        """A host has its key as its name; one of which nothing else is said may be left empty."""
        hosts = value.get("hosts") if isinstance(value, dict) else None
        if not isinstance(hosts, dict):
            return value
        wrong = [
            {"path": ("hosts", key, made), "message": f"there is no such key; known: {', '.join(schema.keys(Host))}"}
            for key, host in hosts.items()
            if isinstance(host, dict)
            for made in sorted(Host.made & set(host))
        ]
        if wrong:
            raise PydanticCustomError("cross", "made by the inventory", {"wrong": wrong})
        return {**value, "hosts": {key: _named(key, host) for key, host in hosts.items()}}

    @model_validator(mode="after")
    def _consistent(self) -> Inventory:
        wrong = [{"path": path, "message": message} for path, message in self._contradictions()]
        if wrong:
            raise PydanticCustomError("cross", "the inventory contradicts itself", {"wrong": wrong})
        return self

    def select(self, wanted: str | Iterable[str]) -> tuple[Host, ...]:
        """The hosts that patterns name, in the inventory's order. ConfigError for a pattern that names none.

        `localhost` is there without being written, by the local transport; `all` does not take it then.
        """
        words = [wanted] if isinstance(wanted, str) else list(wanted)
        names = patterns.select(words, [*self.hosts, *self._unwritten()], self._groups())
        return tuple(self.host(name) for name in names)

    def host(self, name: str) -> Host:
        """The host of that name; KeyError where there is none."""
        host = {**self._unwritten(), **self.hosts}[name]
        return host.model_copy(update={"via": self._via(host.jump)}) if host.jump else host

    def _via(self, jump: str) -> Host | None:
        if jump in self.hosts:
            return self.host(jump)
        found = JUMP.fullmatch(jump)
        return found and Host(
            name=re.sub(r"[^A-Za-z0-9_.-]", "", found["host"]).lstrip(".-") or "jump",
            address=found["host"].strip("[]"),
            user=found["user"],
            port=int(found["port"]) if found["port"] else None,
        )

    def _unwritten(self) -> dict[str, Host]:
        return {} if LOCAL in self.hosts else {LOCAL: Host(name=LOCAL, address=LOCAL, transport="local")}

    def _groups(self) -> dict[str, list[str]]:
        return {**self.groups, "all": list(self.hosts)}

    def _contradictions(self) -> Iterator[tuple[tuple[str, ...], str]]:
        for name in self.groups:
            if name in self.hosts or name == "all":
                yield ("groups", name), "is also a host" if name in self.hosts else "is every host already"
        for name, host in self.hosts.items():
            if host.transport == "local" and host.jump:
                yield ("hosts", name, "jump"), "has no meaning for transport local"
            if host.jump and host.jump not in self.hosts and not JUMP.fullmatch(host.jump):
                yield ("hosts", name, "jump"), f"is no host here and not user@host:port: {host.jump!r}"
            round_trip = self._jumps(name)
            if round_trip:
                yield ("hosts", name, "jump"), f"goes in a circle: {' -> '.join(round_trip)}"
        circles = list(patterns.circles(self.groups))
        yield from circles or self._empty_groups()

    def _empty_groups(self) -> Iterator[tuple[tuple[str, ...], str]]:
        for name in self.groups:
            try:
                self.select(name)
            except ConfigError as error:
                yield ("groups", name), "; ".join(filter(None, (error.what, error.remedy)))

    def _jumps(self, name: str) -> list[str]:
        """The way of jumps from `name` back to itself, or nothing."""
        way = [name]
        while True:
            following = self.hosts[way[-1]].jump
            if following == name:
                return [*way, name]
            if following is None or following not in self.hosts or following in way:
                return []  # a circle further on is told at the hosts that are in it
            way.append(following)


def load(file: Path, source: str = "") -> Inventory:
    """The inventory in `file`. ConfigError lists all that is wrong, with lines; `source` is its name in messages."""
    return read(file, source)[0]


def read(file: Path, source: str = "") -> tuple[Inventory, documents.Document]:
    """The same, and the document, which knows where each thing stands."""
    document = documents.load(file, Inventory, source)
    return validation.validate(Inventory, document.tree, document.where), document


def _named(key: str, host: Any) -> Any:
    if host is None:
        return {"name": key}
    return {**host, "name": key} if isinstance(host, dict) else host
