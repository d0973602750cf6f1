"""The flags of a server's command line, held against those that the installed engine takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class Option:
    """One flag, as the engine's own parser describes it."""

    names: tuple[str, ...]  # with their dashes, the full one first
    values: str  # how many: "0" "1" "?" "*" "+", or a number as argparse's nargs
    kind: str  # of a value: int, float, size (7k), json, truth; "" for any text
    also: tuple[str, ...]  # words that it takes beside its kind
    choices: tuple[str, ...] | None  # None: not a closed list
    deprecated: str  # the engine's words; "" where it is not
    refused: str  # why a server does not start with it; "" where it does
    repeats: bool  # given several times, all of them count

    @property
    def name(self) -> str:
        """Its full name."""
        return max(self.names, key=lambda name: name.startswith("--"))


@dataclass(frozen=True)
class Grammar:
    """How an engine reads its command line, in one version."""

    engine: str
    version: str  # "" where it tells none
    options: tuple[Option, ...]
    abbreviations: bool  # argparse's: the beginning of a name stands for it, as long as no other begins so
    underscores: bool  # --tp_size is --tp-size
    dotted: bool  # --speculative-config.method is a key of --speculative-config's JSON
    inline: bool  # --flag=value
    words: int  # that belong to no flag

    @property
    def known(self) -> str:
        """Whose flags these are, in words."""
        return f"{self.engine} {self.version}".strip()

    @cached_property
    def by_name(self) -> Mapping[str, Option]:
        return {name: option for option in self.options for name in option.names}


def parse(answer: Mapping[str, Any]) -> Grammar:
    """From what `deploy.host.flags` prints. KeyError, TypeError or ValueError where it is something else."""
    options = tuple(map(_option, answer["options"]))
    rules = {key: bool(answer[key]) for key in ("abbreviations", "underscores", "dotted", "inline")}
    return Grammar(str(answer["engine"]), str(answer["version"]), options, words=int(answer["words"]), **rules)


def _option(told: Mapping[str, Any]) -> Option:
    names, choices = tuple(map(str, told["names"])), told["choices"]
    if not names:
        raise ValueError("a flag without a name")
    return Option(
        names,
        str(told["values"]),
        str(told["kind"]),
        tuple(map(str, told["also"])),
        None if choices is None else tuple(map(str, choices)),
        str(told["deprecated"]),
        str(told["refused"]),
        bool(told["repeats"]),
    )
